//! The common part of the attacks, which are Python programs.

/// `attempt(name, function)` and `syscall(name, number, …)` print `name=OK` or `name=ERRNO`.
const PRELUDE: &str = r#"
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def word(number):
    return errno.errorcode.get(number, str(number))
def attempt(name, function):
    try:
        function()
        print(f"{name}=OK", flush=True)
    except OSError as error:
        print(f"{name}={word(error.errno)}", flush=True)
def syscall(name, number, *arguments):
    wide = [a if isinstance(a, (bytes, ctypes.Array)) or a is None else ctypes.c_long(a) for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *wide)
    print(f"{name}=OK" if result != -1 else f"{name}={word(ctypes.get_errno())}", flush=True)
    return result
"#;

/// An attack: the program after the prelude, with its arguments as constants in front.
pub fn attack(program: &str) -> String {
    format!("{PRELUDE}\n{program}")
}
