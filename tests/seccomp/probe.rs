//! Filters in the real kernel: the only test code that needs `unsafe`.
#![allow(unsafe_code)]

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Command;

use stockade_seccomp::Instruction;

/// The entry point of a system call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Door {
    /// The `syscall` instruction, or `svc`.
    Native,
    /// `int 0x80`: the 32-bit table.
    #[cfg(target_arch = "x86_64")]
    Int80,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Success with this value, which is not negative.
    Value(i64),
    /// Failure with this error number.
    Error(i32),
    /// Death of the process by this signal.
    Died(i32),
}

/// Installs a filter on the calling thread, after `no_new_privs`. Returns the error number.
fn install(program: &[Instruction]) -> Result<(), i32> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: the kernel copies `len` instructions of the layout of `struct sock_filter` from a slice that outlives the call.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) != 0
        {
            return Err(*libc::__errno_location());
        }
    }
    Ok(())
}

/// Makes a call in a child under the filter, if any, and returns the outcome.
pub(crate) fn probe(program: Option<&[Instruction]>, door: Door, number: i64, args: [u64; 6]) -> Outcome {
    let mut pipe = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: the child only makes system calls and ends with `_exit`; it allocates and locks nothing.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: a core dump would only cost time; the limit is a valid structure.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 }) };
        let result = match program.map_or(Ok(()), install) {
            Ok(()) => enter(door, number, args),
            Err(errno) => -1_000_000 - i64::from(errno),
        };
        // SAFETY: writes the eight bytes of a local; then exits without running anything else.
        unsafe {
            libc::write(pipe[1], (&raw const result).cast(), 8);
            libc::_exit(0);
        }
    }
    let (mut status, mut result) = (0, 0i64);
    // SAFETY: descriptors of this function; the child is ours; the local has eight bytes.
    let count = unsafe {
        libc::close(pipe[1]);
        let count = libc::read(pipe[0], (&raw mut result).cast(), 8);
        libc::close(pipe[0]);
        libc::waitpid(child, &mut status, 0);
        count
    };
    let status = std::process::ExitStatus::from_raw(status);
    match (count, result) {
        (8, result) if result <= -1_000_000 => panic!("the kernel refused the filter: error {}", -1_000_000 - result),
        (8, result) if (-4095..0).contains(&result) => Outcome::Error(-result as i32),
        (8, result) => Outcome::Value(result),
        _ => Outcome::Died(status.signal().unwrap_or(0)),
    }
}

fn enter(door: Door, number: i64, [a, b, c, d, e, f]: [u64; 6]) -> i64 {
    match door {
        Door::Native => {
            // SAFETY: the probes are chosen to do no harm whether they are made or refused; the child ends after one.
            let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
            // SAFETY: reads this thread's error number.
            if result == -1 { -i64::from(unsafe { *libc::__errno_location() }) } else { result }
        }
        #[cfg(target_arch = "x86_64")]
        Door::Int80 => {
            let mut result = number;
            // SAFETY: as above. `rbx`, which the compiler reserves, is restored; the 32-bit entry clobbers r8 to r11.
            unsafe {
                core::arch::asm!(
                    "xchg rbx, {first}",
                    "int 0x80",
                    "xchg rbx, {first}",
                    first = inout(reg) a => _,
                    inout("rax") result,
                    in("rcx") b, in("rdx") c, in("rsi") d, in("rdi") e,
                    out("r8") _, out("r9") _, out("r10") _, out("r11") _,
                );
            }
            i64::from(result as i32)
        }
    }
}

/// Makes a command start with the filter.
pub(crate) fn confine(command: &mut Command, program: Vec<Instruction>) -> &mut Command {
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(move || install(&program).map_err(std::io::Error::from_raw_os_error)) }
}

/// The nanoseconds that installing a filter takes, and those of one cheap call under it; measured in a child.
#[allow(dead_code)]
pub(crate) fn cost(program: Option<&[Instruction]>, number: i64, args: [u64; 6], calls: u32) -> (f64, f64) {
    let mut pipe = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: the child only makes system calls and ends with `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let start = std::time::Instant::now();
        let installed = program.map_or(Ok(()), install).is_ok();
        let attach = start.elapsed().as_nanos() as f64;
        let start = std::time::Instant::now();
        for _ in 0..calls {
            enter(Door::Native, number, args);
        }
        let call = start.elapsed().as_nanos() as f64 / f64::from(calls.max(1));
        let result = if installed { [attach, call] } else { [f64::NAN; 2] };
        // SAFETY: writes the sixteen bytes of a local.
        unsafe {
            libc::write(pipe[1], result.as_ptr().cast(), 16);
            libc::_exit(0);
        }
    }
    let (mut status, mut result) = (0, [f64::NAN; 2]);
    // SAFETY: descriptors of this function; the child is ours; the local has sixteen bytes.
    unsafe {
        libc::close(pipe[1]);
        libc::read(pipe[0], result.as_mut_ptr().cast(), 16);
        libc::close(pipe[0]);
        libc::waitpid(child, &mut status, 0);
    }
    (result[0], result[1])
}
