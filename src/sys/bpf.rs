//! Device programs of cgroups, `bpf(2)`.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::{Result, check, check_fd};

/// One instruction, `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    code: u8,
    /// Source in the high four bits, destination in the low four.
    registers: u8,
    offset: i16,
    value: i32,
}

const fn one(code: u8, to: u8, from: u8, offset: i16, value: i32) -> Instruction {
    Instruction { code, registers: from << 4 | to, offset, value }
}

/// `to = *(u32 *)(from + offset)`.
pub const fn load_word(to: u8, from: u8, offset: i16) -> Instruction {
    one(0x61, to, from, offset, 0)
}

/// `to = from`, 32 bits.
pub const fn move_register(to: u8, from: u8) -> Instruction {
    one(0xbc, to, from, 0, 0)
}

/// `to = value`, 32 bits.
pub const fn move_number(to: u8, value: i32) -> Instruction {
    one(0xb4, to, 0, 0, value)
}

/// `to >>= by`, 32 bits.
pub const fn shift_right(to: u8, by: i32) -> Instruction {
    one(0x74, to, 0, 0, by)
}

/// `to &= value`, 32 bits.
pub const fn and(to: u8, value: i32) -> Instruction {
    one(0x54, to, 0, 0, value)
}

/// Skips `skip` instructions if the register differs from this number.
pub const fn jump_unless_equal(register: u8, value: i32, skip: i16) -> Instruction {
    one(0x55, register, 0, skip, value)
}

/// Skips `skip` instructions if the register equals this number.
pub const fn jump_if_equal(register: u8, value: i32, skip: i16) -> Instruction {
    one(0x15, register, 0, skip, value)
}

/// Skips `skip` instructions if two registers differ.
pub const fn jump_unless_same(register: u8, other: u8, skip: i16) -> Instruction {
    one(0x5d, register, other, skip, 0)
}

/// Returns register 0.
pub const fn exit() -> Instruction {
    one(0x95, 0, 0, 0, 0)
}

const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const PROG_DETACH: libc::c_int = 9;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const PROG_QUERY: libc::c_int = 16;
const CGROUP_DEVICE_PROGRAM: u32 = 15;
const CGROUP_DEVICE: u32 = 6;
const ALLOW_MULTI: u32 = 2;
/// How often an interrupted load is repeated.
const ATTEMPTS: u32 = 1000;

fn call<T>(command: libc::c_int, attributes: &mut T) -> Result<libc::c_long> {
    // SAFETY: the attributes are a plain structure of the size given, whose pointers are to live data; only used below.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) })
}

/// Loads a program and attaches it to a cgroup. Programs that were attached before are detached afterwards.
pub fn attach_device_program(program: &[Instruction], cgroup: BorrowedFd<'_>) -> Result<()> {
    let before = attached(cgroup)?;
    let new = load(program)?;
    attach(PROG_ATTACH, cgroup, &new)?;
    for id in before {
        match by_id(id).and_then(|old| attach(PROG_DETACH, cgroup, &old)) {
            Ok(()) | Err(Errno::ENOENT) => {} // detached meanwhile
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn load(program: &[Instruction]) -> Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log: [u32; 2],
        log_buffer: u64,
        rest: [u32; 2],
        name: [u8; 16],
    }
    let license = c"Apache-2.0";
    let mut attributes = Load {
        kind: CGROUP_DEVICE_PROGRAM,
        count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log: [0; 2],
        log_buffer: 0,
        rest: [0; 2],
        name: *b"stockade_device\0",
    };
    let mut left = ATTEMPTS;
    loop {
        match call(PROG_LOAD, &mut attributes) {
            // The kernel's verifier stops at any signal, even one that only stops this process for a while.
            Err(Errno::EAGAIN) if left > 0 => left -= 1,
            loaded => return check_fd(loaded?),
        }
    }
}

fn attach(command: libc::c_int, cgroup: BorrowedFd<'_>, program: &OwnedFd) -> Result<()> {
    let flags = if command == PROG_ATTACH { ALLOW_MULTI } else { 0 };
    let mut attributes = [cgroup.as_raw_fd() as u32, program.as_raw_fd() as u32, CGROUP_DEVICE, flags, 0];
    call(command, &mut attributes).map(drop)
}

fn by_id(id: u32) -> Result<OwnedFd> {
    let mut attributes = [id, 0, 0];
    check_fd(call(PROG_GET_FD_BY_ID, &mut attributes)?)
}

fn attached(cgroup: BorrowedFd<'_>) -> Result<Vec<u32>> {
    #[repr(C)]
    struct Query {
        cgroup: u32,
        kind: u32,
        flags: u32,
        attach_flags: u32,
        ids: u64,
        count: u32,
        padding: u32,
    }
    let mut ids = [0u32; 64];
    let mut query = Query {
        cgroup: cgroup.as_raw_fd() as u32,
        kind: CGROUP_DEVICE,
        flags: 0,
        attach_flags: 0,
        ids: ids.as_mut_ptr() as u64,
        count: ids.len() as u32,
        padding: 0,
    };
    call(PROG_QUERY, &mut query)?;
    Ok(ids[..(query.count as usize).min(ids.len())].to_vec())
}
