//! Looks up the program to execute as the kernel does, but without the magic links of `/proc`.
//!
//! A link such as `/proc/self/fd/7` or `/proc/self/exe` leads to a file even outside the root. In a command, in a script's
//! first line or as an ELF interpreter it could execute a file of the host. So each of these is opened without following such
//! links before the command is executed. Afterwards the executed file is compared from outside (`sandbox::executed`).

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::sys::stat::{FileStat, fstat};
use nix::sys::uio::pread;
use nix::unistd::{AccessFlags, faccessat};

use crate::error::Step;
use crate::failure::{Applied, During};
use crate::sys::mount::{FileOnMount, NO_MAGICLINKS, open_beneath};

/// A file that can be executed.
#[derive(Debug)]
pub struct Program {
    /// The file at the command's path, `O_PATH`.
    pub file: OwnedFd,
    /// Its identity.
    pub named: FileOnMount,
    /// The expected `/proc/PID/exe`: the file, or the interpreter of a script.
    pub executed: FileOnMount,
}

/// How deeply scripts can be nested as interpreters, `BINPRM_MAX_RECURSION` and the last program.
const MOST_INTERPRETERS: usize = 6;

/// The bytes of a file that are read first. Program headers usually lie within them.
const HEAD: usize = 1024;

/// `BINPRM_BUF_SIZE`: the bytes of a script's first line that the kernel reads.
const FIRST_LINE: usize = 256;

impl Program {
    /// Looks up a path in this process's root and working directory. Fails with `ELOOP` if the path, or an interpreter in the
    /// file, leads through a magic link of `/proc`.
    pub fn find(path: &CStr) -> Result<Self, Errno> {
        let file = open(path)?;
        let named = FileOnMount::of(&file)?;
        let mut executed = named;
        let (mut current, mut opened) = (path.to_owned(), None);
        for _ in 0..MOST_INTERPRETERS {
            let found = match interpreter(&current, opened.as_ref().unwrap_or(&file))? {
                Named::Nothing => break,
                Named::Script(interpreter) => open(&interpreter).map(|found| (interpreter, found)),
                Named::Elf(interpreters) => {
                    for interpreter in interpreters.iter().flatten() {
                        open(interpreter).map(drop).or_else(unless_kernel_fails_too)?; // the ELF interpreter is mapped beside the program
                    }
                    break;
                }
            };
            match found {
                Ok((interpreter, found)) => {
                    executed = FileOnMount::of(&found)?;
                    (current, opened) = (interpreter, Some(found));
                }
                Err(errno) => {
                    unless_kernel_fails_too(errno)?;
                    break;
                }
            }
        }
        Ok(Self { file, named, executed })
    }

    /// Whether it is a directory, which cannot be executed.
    pub fn is_directory(&self) -> bool {
        fstat(&self.file).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR)
    }

    /// Time of the last change of its contents or attributes, by the kernel's clock. No process can set that time back.
    pub fn changed_ns(&self) -> Result<u64, Errno> {
        Ok(changed_ns(&fstat(&self.file)?))
    }
}

/// The programs that execve(2) will try.
#[derive(Debug)]
pub struct Executable<'a> {
    pub(super) paths: Vec<&'a CString>,
    /// The file that the first of them executes.
    pub executed: Option<FileOnMount>,
}

/// The candidates that exist, opened, in the order of the sandbox's PATH.
#[derive(Debug)]
pub struct Found<'a> {
    pub(super) programs: Vec<(&'a CString, Program)>,
}

impl<'a> Found<'a> {
    /// The first candidate.
    pub fn program(&self) -> Option<&Program> {
        self.programs.first().map(|(_, program)| program)
    }

    /// Removes candidates without execute permission, as `execvp(3)` skips them.
    pub fn retain_executable(&mut self) -> Applied {
        self.programs.retain(|(_, program)| {
            let flags = AtFlags::AT_EACCESS | AtFlags::AT_EMPTY_PATH;
            let access = faccessat(&program.file, c"", AccessFlags::X_OK, flags);
            // Another error may come from a filter that is already installed. Then execve reports the truth.
            !program.is_directory() && access != Err(Errno::EACCES)
        });
        if self.programs.is_empty() { Err(Errno::EACCES).during(Step::Exec, 0) } else { Ok(()) }
    }

    /// Closes the files.
    pub fn close(self) -> Executable<'a> {
        let executed = self.program().map(|program| program.executed);
        Executable { paths: self.programs.into_iter().map(|(path, _)| path).collect(), executed }
    }
}

/// Time of the last change of a file's contents or attributes, by the kernel's clock. No process can set that time back.
pub fn changed_ns(stat: &FileStat) -> u64 {
    (stat.st_ctime as u64).wrapping_mul(1_000_000_000).wrapping_add(stat.st_ctime_nsec as u64)
}

fn open(path: &CStr) -> Result<OwnedFd, Errno> {
    open_beneath(AT_FDCWD, path, libc::O_PATH, NO_MAGICLINKS)
}

/// Accepts the errors that execve will report itself: the interpreter does not exist or is not executable. Any other error,
/// such as a lack of descriptors, is ours alone and must not let the kernel open what this lookup could not.
fn unless_kernel_fails_too(errno: Errno) -> Result<(), Errno> {
    match errno {
        Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ENAMETOOLONG => Ok(()),
        errno => Err(errno),
    }
}

/// The interpreter that a file names.
enum Named {
    /// None, or the file is not readable.
    Nothing,
    /// From the first line of a script.
    Script(CString),
    /// From the program headers, as each of the kernel's two ELF loaders reads them.
    Elf([Option<CString>; 2]),
}

/// Reads the interpreter that a file names. A program that its user may execute but not read is covered only by the comparison
/// from outside.
fn interpreter(path: &CStr, opened: &OwnedFd) -> Result<Named, Errno> {
    let is_regular = |file: &OwnedFd| fstat(file).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG);
    if !is_regular(opened) {
        return Ok(Named::Nothing); // opening a device or a FIFO could have side effects
    }
    let flags = (OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let file = match open_beneath(AT_FDCWD, path, flags, NO_MAGICLINKS) {
        Err(errno) => return unless_kernel_fails_too(errno).map(|()| Named::Nothing),
        Ok(file) if !is_regular(&file) => return Ok(Named::Nothing),
        Ok(file) => file,
    };
    let mut head = [0; HEAD];
    let length = pread(file.as_fd(), &mut head, 0)?;
    let head = &head[..length];
    Ok(match head {
        [b'#', b'!', ..] => of_script(&head[2..length.min(FIRST_LINE)]).map_or(Named::Nothing, Named::Script),
        [0x7f, b'E', b'L', b'F', ..] => Named::Elf([true, false].map(|wide| of_elf(&file, head, wide))),
        _ => Named::Nothing,
    })
}

/// The first word after `#!`, as `fs/binfmt_script.c` parses it.
fn of_script(line: &[u8]) -> Option<CString> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t' | 0)).filter(|word| !word.is_empty());
    CString::new(words.next()?).ok()
}

/// The path in the first `PT_INTERP` program header, `elf(5)`, with 64-bit headers (`wide`) or 32-bit ones.
///
/// The kernel ignores the class in the ELF header and relies on the size of the program headers.
fn of_elf(file: &OwnedFd, head: &[u8], wide: bool) -> Option<CString> {
    const PT_INTERP: u32 = 3;
    let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let word = |from: &[u8], at: usize| Some(u32::from_le_bytes(from.get(at..at + 4)?.try_into().ok()?));
    let long = |from: &[u8], at: usize| Some(u64::from_le_bytes(from.get(at..at + 8)?.try_into().ok()?));
    let (headers, said, size, count) = match wide {
        true => (long(head, 32)?, half(54)?, 56, half(56)?),
        false => (u64::from(word(head, 28)?), half(42)?, 32, half(44)?),
    };
    if usize::from(said) != size {
        return None;
    }
    for index in 0..u64::from(count) {
        let mut header = [0; 56];
        let header = &mut header[..size];
        read_at(file, head, headers.checked_add(index * size as u64)?, header)?;
        if word(header, 0)? != PT_INTERP {
            continue;
        }
        let (offset, length) = match wide {
            true => (long(header, 8)?, long(header, 32)?),
            false => (u64::from(word(header, 4)?), u64::from(word(header, 16)?)),
        };
        let mut path = vec![0; usize::try_from(length).ok().filter(|length| *length <= libc::PATH_MAX as usize)?];
        read_at(file, head, offset, &mut path)?;
        return CStr::from_bytes_until_nul(&path).ok().map(CStr::to_owned);
    }
    None
}

/// Fills the buffer from an offset in the file, whose head has been read.
fn read_at(file: &OwnedFd, head: &[u8], offset: u64, buffer: &mut [u8]) -> Option<()> {
    let start = usize::try_from(offset).ok()?;
    if let Some(known) = head.get(start..start.checked_add(buffer.len())?) {
        buffer.copy_from_slice(known);
        return Some(());
    }
    let read = pread(file.as_fd(), buffer, i64::try_from(offset).ok()?).ok()?;
    (read == buffer.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_is_the_first_word_of_the_line() {
        let found = |line: &[u8]| of_script(line).map(|path| path.into_string().unwrap());
        assert_eq!(found(b" /bin/sh -e\nrest"), Some("/bin/sh".to_owned()));
        assert_eq!(found(b"\t/proc/self/exe"), Some("/proc/self/exe".to_owned()));
        assert_eq!(found(b" \n/bin/sh"), None);
    }

    #[test]
    fn a_link_of_proc_is_not_followed_wherever_it_is_named() {
        let directory = std::env::temp_dir().join(format!("stockade-program-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let find = |path: &std::path::Path| {
            Program::find(&CString::new(path.to_str().unwrap()).unwrap()).map(|found| found.executed)
        };
        let script = directory.join("script");
        let write = |line: &str| std::fs::write(&script, line).unwrap();
        write("#! /bin/sh -e\n");
        assert_eq!(find(&script).unwrap(), FileOnMount::by_path(c"/bin/sh").unwrap());
        write("#!/proc/self/exe\n");
        assert_eq!(find(&script).unwrap_err(), Errno::ELOOP);
        assert_eq!(find(std::path::Path::new("/proc/self/exe")).unwrap_err(), Errno::ELOOP);
        let second = directory.join("second");
        std::fs::write(&second, format!("#!{}\n", script.display())).unwrap();
        assert_eq!(find(&second).unwrap_err(), Errno::ELOOP, "an interpreter's interpreter");
        // A dynamic program with another interpreter, of the same length.
        let mut elf = std::fs::read("/bin/ls").unwrap();
        let loader = b"/lib64/ld-linux-x86-64.so.2";
        if let Some(at) = elf.windows(loader.len()).position(|bytes| bytes == loader) {
            elf[at..at + loader.len()].copy_from_slice(b"/proc/self/exe\0-linux-64.so");
            let program = directory.join("elf");
            std::fs::write(&program, &elf).unwrap();
            assert_eq!(find(&program).unwrap_err(), Errno::ELOOP);
            // The kernel executes it whatever class and byte order it says it is of.
            for (class, order) in [(1, 1), (9, 1), (2, 2)] {
                (elf[4], elf[5]) = (class, order);
                std::fs::write(&program, &elf).unwrap();
                assert_eq!(find(&program).unwrap_err(), Errno::ELOOP, "class {class}, byte order {order}");
            }
        }
        assert!(find(std::path::Path::new("/bin/ls")).is_ok());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
