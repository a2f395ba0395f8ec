//! A second thread for one long system call, which runs meanwhile on another processor: `clone3(2)`, `futex(2)`.
//!
//! It is not a thread of the C library and has no thread-local storage of its own. So its task cannot use the library or
//! `errno`, only [`call`].

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use super::stack::Stack;
use super::{Result, check};

/// 1 while the thread exists. The kernel clears it and wakes the waiting thread after the thread's last instruction.
static RUNS: AtomicU32 = AtomicU32::new(0);

/// The result of the task.
static RESULT: AtomicI64 = AtomicI64::new(0);

/// The first id that the kernel assigns after the ids wrap around, `RESERVED_PIDS` in `kernel/pid.c`.
static TID: libc::pid_t = 300;

/// The running thread. Ends with the process if it is not waited for.
#[derive(Debug)]
pub struct Thread {
    stack: ManuallyDrop<Stack>,
}

impl Thread {
    /// Starts the thread. Its credentials, signal mask and namespaces are copies of the caller's; descriptors are shared. On
    /// failure the stack is returned. Only one thread may exist at a time.
    ///
    /// Its id is one that a new pid namespace does not assign for a long time, so the thread does not change the ids of other
    /// processes.
    ///
    /// # Safety
    /// `task` makes system calls only through [`call`], and does not panic.
    pub unsafe fn start(stack: Stack, task: extern "C" fn() -> i64) -> std::result::Result<Self, Stack> {
        extern "C" fn enter(task: *mut libc::c_void) {
            // SAFETY: the pointer below, to a function of this type.
            let task: extern "C" fn() -> i64 = unsafe { std::mem::transmute(task) };
            RESULT.store(task(), Ordering::Relaxed); // before RUNS is cleared
        }
        RUNS.store(1, Ordering::Relaxed);
        let (bottom, size) = stack.usable();
        // SAFETY: all-zero is a valid clone_args.
        let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
        let shared =
            libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD | libc::CLONE_SYSVSEM;
        args.flags = (shared | libc::CLONE_CHILD_CLEARTID) as u64;
        args.child_tid = RUNS.as_ptr().expose_provenance() as u64;
        args.stack = bottom.expose_provenance() as u64;
        args.stack_size = size as u64;
        args.set_tid = (&raw const TID).expose_provenance() as u64;
        args.set_tid_size = 1;
        // SAFETY: the thread has its own stack, which is kept until it has ended, and writes only the two statics.
        let tid = unsafe { clone_running(&args, enter, task as *mut libc::c_void) };
        if tid < 0 { Err(stack) } else { Ok(Self { stack: ManuallyDrop::new(stack) }) }
    }

    /// Waits for the thread. Returns the task's result and the stack.
    pub fn wait(self) -> (i64, Stack) {
        while RUNS.load(Ordering::Acquire) != 0 {
            let forever: *const libc::timespec = std::ptr::null();
            // SAFETY: the kernel reads the word, a static. The call is repeated if it is interrupted or refused.
            let _: Result<_> =
                check(unsafe { libc::syscall(libc::SYS_futex, RUNS.as_ptr(), libc::FUTEX_WAIT, 1, forever) });
        }
        (RESULT.load(Ordering::Relaxed), ManuallyDrop::into_inner(self.stack))
    }
}

/// `clone3(2)`. The new thread or process calls `enter(task)` and ends. An error is its negative number.
///
/// # Safety
/// The arguments contain a stack that outlives the new thread, and `enter` may be called with `task` there.
pub(super) unsafe fn clone_running(
    args: &libc::clone_args,
    enter: extern "C" fn(*mut libc::c_void),
    task: *mut libc::c_void,
) -> i64 {
    let said: i64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention: all other registers are equal in both threads, and the caller continues at once.
    unsafe {
        std::arch::asm!(
            "syscall", "test rax, rax", "jnz 2f",
            "xor ebp, ebp", "mov rdi, r9", "call r8", "xor edi, edi", "mov eax, {exit}", "syscall", "ud2",
            "2:",
            exit = const libc::SYS_exit,
            inlateout("rax") libc::SYS_clone3 => said, in("rdi") args, in("rsi") size_of::<libc::clone_args>(),
            in("r8") enter, in("r9") task, lateout("rcx") _, lateout("r11") _, options(nostack)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: likewise.
    unsafe {
        std::arch::asm!(
            "svc #0", "cbnz x0, 2f",
            "mov x29, xzr", "mov x0, x10", "blr x9", "mov x0, xzr", "mov x8, {exit}", "svc #0", "udf #0",
            "2:",
            exit = const libc::SYS_exit,
            in("x8") libc::SYS_clone3, inlateout("x0") args => said, in("x1") size_of::<libc::clone_args>(),
            in("x9") enter, in("x10") task, options(nostack)
        );
    }
    said
}

/// A system call without the C library. Returns the kernel's result; an error is its negative number.
///
/// # Safety
/// As for the call itself.
pub unsafe fn call(number: libc::c_long, arguments: [usize; 3]) -> i64 {
    let [a, b, c] = arguments;
    let said: i64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention; only these registers change. The caller guarantees the rest.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") number => said, in("rdi") a, in("rsi") b, in("rdx") c,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: likewise.
    unsafe {
        std::arch::asm!("svc #0", in("x8") number, inlateout("x0") a => said, in("x1") b, in("x2") c, options(nostack));
    }
    said
}
