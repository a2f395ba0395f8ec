//! System calls without a library: raw calls, a child for each attempt, memory below 4 GiB. The only unsafe code.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io::{Read as _, Write as _};
use std::os::fd::FromRawFd as _;

use crate::{Outcome, Stop};

/// Makes one system call. Pointers refer to the callers' own buffers, which live as long as the call.
pub fn call(number: i64, arguments: &[usize]) -> Result<usize, i32> {
    let mut a = [0; 6];
    a[..arguments.len()].copy_from_slice(arguments);
    // SAFETY: the arguments are numbers, or point to memory that the caller keeps alive; a bad pointer gives EFAULT.
    let result = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) };
    usize::try_from(result).map_err(|_| errno())
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Leaks a path as a C string, for as long as the program runs.
pub fn path(text: &str) -> usize {
    CString::new(text).unwrap_or_default().into_raw() as usize
}

/// `openat(2)` relative to a descriptor.
pub fn open_at(directory: i32, name: &str, flags: i32, mode: u32) -> Result<i32, i32> {
    let fd = call(libc::SYS_openat, &[directory as usize, path(name), flags as usize, mode as usize])?;
    Ok(fd as i32)
}

/// `open(2)`.
pub fn open(name: &str, flags: i32) -> Result<i32, i32> {
    open_at(libc::AT_FDCWD, name, flags | libc::O_CLOEXEC, 0o644)
}

/// Reads up to 200 bytes.
pub fn read_fd(fd: i32) -> Result<String, i32> {
    let mut buffer = [0u8; 200];
    let length = call(libc::SYS_read, &[fd as usize, buffer.as_mut_ptr() as usize, buffer.len()])?;
    Ok(String::from_utf8_lossy(&buffer[..length]).trim().escape_debug().to_string())
}

/// Opens a file and reads it.
pub fn read(name: &str) -> Result<String, i32> {
    read_fd(open(name, libc::O_RDONLY | libc::O_NONBLOCK)?)
}

/// Makes an attempt in a child, which alone has its effects. Death by a signal is reported as such.
pub fn in_child(attempt: impl FnOnce() -> Outcome) -> Outcome {
    let mut ends = [0i32; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return Err(Stop::Errno(errno()));
    }
    // SAFETY: this program has one thread.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(Stop::Errno(errno()));
    }
    // SAFETY: created above, and not owned elsewhere.
    let (reader, writer) = unsafe { (std::fs::File::from_raw_fd(ends[0]), std::fs::File::from_raw_fd(ends[1])) };
    if pid == 0 {
        drop(reader);
        // SAFETY: ends this child if it hangs.
        unsafe { libc::alarm(20) };
        let text = match attempt() {
            Ok(detail) => format!("+{detail}"),
            Err(Stop::Errno(number)) => format!("-{number}"),
            Err(Stop::Signal(number)) => format!("!{number}"),
            Err(Stop::Absent(why)) => format!("?{why}"),
        };
        let _ = (&writer).write_all(text.as_bytes());
        // SAFETY: skips the parent's destructors.
        unsafe { libc::_exit(0) };
    }
    drop(writer);
    let mut text = String::new();
    let _ = (&reader).read_to_string(&mut text);
    let mut status = 0;
    // SAFETY: room for one status.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if text.is_empty() {
        return Err(Stop::Signal(status & 0x7f));
    }
    let (kind, rest) = text.split_at(1);
    match kind {
        "+" => Ok(rest.to_owned()),
        "-" => Err(Stop::Errno(rest.parse().unwrap_or(0))),
        "!" => Err(Stop::Signal(rest.parse().unwrap_or(0))),
        _ => Err(Stop::Absent(rest.to_owned())),
    }
}

/// Starts a child that runs this and exits. Returns its process id.
pub fn spawn(body: impl FnOnce()) -> Result<i32, i32> {
    // SAFETY: this program has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(errno()),
        0 => {
            body();
            // SAFETY: skips the parent's destructors.
            unsafe { libc::_exit(0) }
        }
        pid => Ok(pid),
    }
}

/// Waits for the end of a child.
pub fn wait(pid: i32) {
    // SAFETY: the status pointer may be null.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

/// Exits at once.
pub fn exit(code: i32) -> ! {
    // SAFETY: nothing may run any more.
    unsafe { libc::_exit(code) }
}

/// Maps this many bytes, shared or private, and touches all of them.
pub fn touch(bytes: usize, flags: i32, fd: i32) -> Result<(), i32> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, 0) };
    if memory == libc::MAP_FAILED {
        return Err(errno());
    }
    for at in (0..bytes).step_by(4096) {
        // SAFETY: within the mapping.
        unsafe { memory.cast::<u8>().add(at).write_volatile(1) };
    }
    Ok(())
}

/// Copies bytes to a page that 32-bit pointers can reach.
#[cfg(target_arch = "x86_64")]
fn low(bytes: &[u8]) -> u32 {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT);
    // SAFETY: a new mapping of one page at an address that the kernel chooses.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0) };
    // SAFETY: the page is mapped and larger than the bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), page.cast(), bytes.len().min(4095)) };
    page as usize as u32
}

/// Makes a system call through the 32-bit entry, by its number there. Bytes are passed as pointers.
#[cfg(target_arch = "x86_64")]
pub fn call_32(number: u32, arguments: &[Low<'_>]) -> Result<u32, i32> {
    let mut a = [0u64; 3];
    for (to, argument) in a.iter_mut().zip(arguments) {
        *to = match argument {
            Low::Number(number) => u64::from(*number),
            Low::Bytes(bytes) => u64::from(low(bytes)),
        };
    }
    let result: u64;
    // SAFETY: the kernel reads low memory and writes the result into a register.
    unsafe {
        std::arch::asm!("xchg rbx, {b}", "int 0x80", "xchg rbx, {b}", b = inout(reg) a[0] => _,
            inlateout("rax") u64::from(number) => result, in("rcx") a[1], in("rdx") a[2], in("rsi") 0u64, in("rdi") 0u64,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    let result = result as u32 as i32;
    u32::try_from(result).map_err(|_| -result)
}

/// An argument of [`call_32`].
#[cfg(target_arch = "x86_64")]
pub enum Low<'a> {
    /// A number.
    Number(u32),
    /// The address of these bytes.
    Bytes(&'a [u8]),
}

/// Opens a file for reading with io_uring alone.
pub fn open_by_ring(name: &str) -> Result<i32, i32> {
    let mut parameters = [0u32; 30];
    let ring = call(libc::SYS_io_uring_setup, &[4, parameters.as_mut_ptr() as usize])?;
    let map = |offset: usize| {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: one of the ring's own mappings, at an address that the kernel chooses.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, flags, ring as i32, offset as i64) };
        if memory == libc::MAP_FAILED { Err(errno()) } else { Ok(memory.cast::<u8>()) }
    };
    let (submit, complete, entries) = (map(0)?, map(0x0800_0000)?, map(0x1000_0000)?);
    let offset = |index: usize| parameters[index] as usize;
    // SAFETY: the offsets come from the kernel and refer to the pages just mapped.
    unsafe {
        entries.write(18); // IORING_OP_OPENAT
        entries.add(4).cast::<i32>().write(libc::AT_FDCWD);
        entries.add(16).cast::<u64>().write(path(name) as u64);
        submit.add(offset(16)).cast::<u32>().write(0); // array[0]: the first entry
        submit.add(offset(11)).cast::<u32>().write_volatile(1); // tail
    }
    call(libc::SYS_io_uring_enter, &[ring, 1, 1, 1, 0, 0])?;
    // SAFETY: the first completion, which the kernel has written.
    let result = unsafe { complete.add(offset(25) + 8).cast::<i32>().read_volatile() };
    if result < 0 { Err(-result) } else { Ok(result) }
}

/// Sends descriptors through a socket without blocking.
pub fn send_descriptors(socket: i32, descriptors: &[i32]) -> Result<(), i32> {
    let mut control = vec![0u64; 2 + descriptors.len().div_ceil(2) + 1];
    let length = 16 + size_of_val(descriptors);
    control[0] = length as u64;
    control[1] = libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32;
    // SAFETY: all of them fit after the header.
    unsafe {
        let to = control.as_mut_ptr().add(2).cast::<i32>();
        std::ptr::copy_nonoverlapping(descriptors.as_ptr(), to, descriptors.len());
    }
    let mut byte = [1u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: all zero is an empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), length as _);
    call(libc::SYS_sendmsg, &[socket as usize, &raw const message as usize, libc::MSG_DONTWAIT as usize]).map(drop)
}

/// Replaces this program; returns only with a failure.
pub fn exec(program: &str, arguments: &[&str]) -> i32 {
    let texts: Vec<_> = arguments.iter().map(|text| path(text)).chain([0]).collect();
    let environment = [0usize];
    call(libc::SYS_execve, &[path(program), texts.as_ptr() as usize, environment.as_ptr() as usize])
        .map_or_else(|e| e, |_| 0)
}

/// The current working directory.
pub fn current_directory() -> Result<String, i32> {
    let mut buffer = [0u8; 4096];
    call(libc::SYS_getcwd, &[buffer.as_mut_ptr() as usize, buffer.len()])?;
    Ok(CStr::from_bytes_until_nul(&buffer).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default())
}
