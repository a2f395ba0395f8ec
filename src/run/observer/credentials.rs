//! What file modes refuse a thread, as `generic_permission` of the kernel decides.

use nix::sys::stat::FileStat;

use crate::sys::status::Status;

/// May search a directory, or execute a file.
pub const EXECUTE: u32 = 1;
pub const WRITE: u32 = 2;
pub const READ: u32 = 4;

/// CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER: with one of them modes do not decide alone.
const OVERRIDING: u64 = 0b1111;

/// The user and groups of a thread for files, as the host's ids.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub user: u32,
    groups: Vec<u32>,
}

impl Credentials {
    /// `None` if they cannot be read, or if a capability decides too.
    pub fn of(thread: u32) -> Option<Self> {
        Self::from(&Status::of(i32::try_from(thread).ok()?).ok()?)
    }

    fn from(status: &Status) -> Option<Self> {
        if status.mask("CapEff")? & OVERRIDING != 0 {
            return None;
        }
        // The last of the four is the one for files.
        let (user, group) = (*status.numbers("Uid")?.get(3)?, *status.numbers("Gid")?.get(3)?);
        let groups = status.numbers("Groups").unwrap_or_default();
        Some(Self { user, groups: [vec![group], groups].concat() })
    }

    /// Whether the mode refuses one of these.
    pub fn is_refused_by(&self, stat: &FileStat, wanted: u32) -> bool {
        let class = match () {
            () if self.user == stat.st_uid => 6,
            () if self.groups.contains(&stat.st_gid) => 3,
            () => 0,
        };
        wanted & !(stat.st_mode >> class) != 0
    }

    /// Whether only its owner may remove or rename a file of this directory, and this is another.
    pub fn is_kept_from(&self, directory: &FileStat, entry: &FileStat) -> bool {
        let sticky = directory.st_mode & libc::S_ISVTX != 0;
        sticky && self.user != entry.st_uid && self.user != directory.st_uid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_decides_by_the_first_class_that_fits() {
        let status =
            |caps| Status::new(format!("Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapEff:\t{caps}\n"));
        let who = Credentials::from(&status("0000000000000000")).unwrap();
        assert!(Credentials::from(&status("0000000000000002")).is_none());
        assert!(Credentials::from(&Status::new("Uid:\t1\t2\t3\t4\n")).is_none());
        let some = nix::sys::stat::stat("/").unwrap();
        let file = |uid, gid, mode| {
            let mut file = some;
            (file.st_uid, file.st_gid, file.st_mode) = (uid, gid, mode);
            file
        };
        for (uid, gid, mode, wanted, refused) in [
            (4, 0, 0o600, READ | WRITE, false),
            (4, 0, 0o600, EXECUTE, true),
            (4, 8, 0o077, READ, true),
            (0, 8, 0o070, READ | WRITE | EXECUTE, false),
            (0, 10, 0o707, READ, true),
            (0, 0, 0o664, READ, false),
            (0, 0, 0o664, WRITE, true),
        ] {
            assert_eq!(who.is_refused_by(&file(uid, gid, mode), wanted), refused, "{uid} {gid} {mode:o} {wanted}");
        }
        let sticky = file(0, 0, 0o1777);
        assert!(who.is_kept_from(&sticky, &file(1, 0, 0o666)) && !who.is_kept_from(&sticky, &file(4, 0, 0)));
        assert!(!who.is_kept_from(&file(0, 0, 0o777), &file(1, 0, 0o666)));
    }
}
