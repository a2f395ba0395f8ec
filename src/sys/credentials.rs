//! Ids, groups and capabilities of this thread, `credentials(7)`.

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use super::process::prctl;
use super::{Result, check};

/// Sets the real, effective and saved group and user ids of this thread only; glibc would signal other threads.
pub fn set_ids(uid: u32, gid: u32) -> Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: plain numbers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }).map(drop)
}

/// Drops all supplementary groups.
pub fn clear_groups() -> Result<()> {
    let none: *const libc::gid_t = std::ptr::null();
    // SAFETY: a list of length zero is not read.
    check(unsafe { libc::syscall(libc::SYS_setgroups, 0, none) }).map(drop)
}

/// Replaces the supplementary groups.
pub fn set_groups(groups: &[u32]) -> Result<()> {
    // SAFETY: the kernel reads exactly the slice.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }).map(drop)
}

/// Calls `act` with the file system ids of a user who has neither groups nor capabilities, `setfsuid(2)`. The caller has dropped its
/// groups.
pub fn as_user<T>(uid: u32, gid: u32, act: impl FnOnce() -> T) -> Result<T> {
    let own = capabilities()?;
    let set = |uid, gid| {
        let gid = setfsgid(Gid::from_raw(gid));
        (setfsuid(Uid::from_raw(uid)), gid)
    };
    let before = set(uid, gid);
    let taken = set(uid, gid) == (Uid::from_raw(uid), Gid::from_raw(gid));
    let result = match taken {
        true => set_capabilities(CapSets { effective: 0, ..own }).map(|()| act()),
        false => Err(Errno::EPERM),
    };
    set_capabilities(own)?;
    set(before.0.as_raw(), before.1.as_raw());
    set_capabilities(own)?; // a change to root's id has added some
    result
}

/// Keeps the permitted capabilities across a change of user, `PR_SET_KEEPCAPS`. Ends with execve.
pub fn keep_capabilities(keep: bool) -> Result<()> {
    prctl(libc::PR_SET_KEEPCAPS, keep.into(), 0).map(drop)
}

/// Empties the ambient set.
pub fn clear_ambient() -> Result<()> {
    prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u64, 0).map(drop)
}

/// Whether the real, effective and saved user and group ids all have these values.
pub fn has_ids(uid: u32, gid: u32) -> Result<bool> {
    let (mut ids, mut groups) = ([0u32; 3], [0u32; 3]);
    let [a, b, c] = &mut ids;
    // SAFETY: three pointers to live locals.
    check(unsafe { libc::syscall(libc::SYS_getresuid, a, b, c) })?;
    let [a, b, c] = &mut groups;
    // SAFETY: three pointers to live locals.
    check(unsafe { libc::syscall(libc::SYS_getresgid, a, b, c) })?;
    Ok(ids == [uid; 3] && groups == [gid; 3])
}

/// Removes a capability, by number, from the bounding set. `EINVAL` if the kernel has no such capability.
pub fn drop_bounding(capability: u32) -> Result<()> {
    prctl(libc::PR_CAPBSET_DROP, capability.into(), 0).map(drop)
}

/// Whether a capability, by number, is in the bounding set. `EINVAL` if the kernel has no such capability.
pub fn in_bounding(capability: u32) -> Result<bool> {
    prctl(libc::PR_CAPBSET_READ, capability.into(), 0).map(|value| value == 1)
}

/// Adds a capability, by number, to the ambient set.
pub fn raise_ambient(capability: u32) -> Result<()> {
    prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE as u64, capability.into()).map(drop)
}

/// `PR_SET_SECUREBITS`.
pub fn set_securebits(bits: u32) -> Result<()> {
    prctl(libc::PR_SET_SECUREBITS, bits.into(), 0).map(drop)
}

/// `PR_GET_SECUREBITS`.
pub fn securebits() -> Result<u32> {
    prctl(libc::PR_GET_SECUREBITS, 0, 0).map(|bits| bits as u32)
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// The three sets of `capget(2)`, as bit masks by capability number. Crate caps, which others use, sets one at a time and
/// allocates, so it is not for the child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapSets {
    /// The capabilities that the kernel checks.
    pub effective: u64,
    /// The capabilities that may become effective.
    pub permitted: u64,
    /// The capabilities that stay across execve of a file that lists them.
    pub inheritable: u64,
}

/// This process's capabilities, `capget(2)`.
pub fn capabilities() -> Result<CapSets> {
    capabilities_of(0)
}

/// The capabilities of a process. This is some thirty times as fast as `/proc/PID/status`.
pub fn capabilities_of(pid: libc::pid_t) -> Result<CapSets> {
    let mut header = CapHeader { version: CAPABILITY_VERSION_3, pid };
    let mut data = [CapData::default(); 2];
    // SAFETY: version 3 takes two data elements; both pointers are to live locals.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) })?;
    let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    Ok(CapSets {
        effective: join(data[0].effective, data[1].effective),
        permitted: join(data[0].permitted, data[1].permitted),
        inheritable: join(data[0].inheritable, data[1].inheritable),
    })
}

/// Sets this process's capabilities, `capset(2)`.
pub fn set_capabilities(sets: CapSets) -> Result<()> {
    let mut header = CapHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let half = |shift: u32| CapData {
        effective: (sets.effective >> shift) as u32,
        permitted: (sets.permitted >> shift) as u32,
        inheritable: (sets.inheritable >> shift) as u32,
    };
    let data = [half(0), half(32)];
    // SAFETY: version 3 takes two data elements; both pointers are to live locals.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) }).map(drop)
}
