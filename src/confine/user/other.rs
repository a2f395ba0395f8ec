//! The other users of a sandbox that maps a range of ids. A command of a session can run as one of them.

use super::{Extent, Users};
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::plan::Identity;
use crate::sys::{credentials, process};

/// A user of the sandbox that is not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// Its user id inside.
    pub uid: u32,
    /// Its group id inside.
    pub gid: u32,
    /// Its user and group on the host.
    pub host_ids: (u32, u32),
}

impl Users {
    /// Whether the sandbox has others.
    pub fn has_others(&self) -> bool {
        let is_range = |map: &[Extent]| map.iter().any(|extent| extent.count > 1) || map.len() > 1;
        self.mapped && (is_range(&self.uid_map) || is_range(&self.gid_map))
    }

    /// The user with these ids inside; `None` if that is the sandbox's own. Fails for an id without a mapping.
    pub fn other(&self, uid: u32, gid: u32) -> Result<Option<Other>> {
        if (uid, gid) == (self.uid, self.gid) {
            return Ok(None);
        }
        let unmapped = |what: &str, id: u32, map: &[Extent]| {
            let error =
                Error::new(Step::Identity, format!("{what} {id}"), format!("the session maps {}", named_map(map)));
            match self.has_others() {
                true => error.hint("a longer range in /etc/subuid and /etc/subgid maps more"),
                false => error.hint(
                    "make the session with --subuid (user.map = \"subordinate\"), which maps the ranges of subuid(5); or make it \
                     with this user: stockade run -d --user",
                ),
            }
        };
        let host_uid = outside(&self.uid_map, uid).ok_or_else(|| unmapped("user", uid, &self.uid_map))?;
        let host_gid = outside(&self.gid_map, gid).ok_or_else(|| unmapped("group", gid, &self.gid_map))?;
        Ok(Some(Other { uid, gid, host_ids: (host_uid, host_gid) }))
    }
}

impl Other {
    /// Child half: becomes this user for good, with `CAP_SETUID` and `CAP_SETGID`, which are dropped next. Its groups are cleared
    /// already, and the securebits keep the change from touching capabilities.
    pub fn take(&self) -> Applied {
        credentials::set_ids(self.uid, self.gid).during(Step::SetIds, 1)?;
        // The change of ids set it to fs.suid_dumpable, for init too, whose memory this may be.
        process::set_dumpable(false).during(Step::SetIds, 1)
    }

    /// Child half: checks all three user ids and group ids.
    pub fn verify(&self) -> Applied {
        super::verify((self.uid, self.gid))
    }
}

/// The ids of a user that a sandbox with this identity has a name for. Names in files of the sandbox are not looked up: the
/// workload may have written them.
pub fn named(identity: &Identity, name: &str) -> Option<(u32, u32)> {
    match name {
        name if name == identity.user => Some((identity.uid, identity.gid)),
        "root" => Some((0, 0)),
        "nobody" => Some((65_534, 65_534)),
        _ => None,
    }
}

fn outside(map: &[Extent], id: u32) -> Option<u32> {
    let extent = map.iter().find(|extent| id.wrapping_sub(extent.inside) < extent.count)?;
    Some(id - extent.inside + extent.outside)
}

/// The ids inside, such as `0-65535`.
fn named_map(map: &[Extent]) -> String {
    let mut ranges: Vec<_> = map.iter().map(|extent| (extent.inside, extent.inside + (extent.count - 1))).collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let adjacent = last.1.checked_add(1) == Some(next.0);
        if adjacent {
            last.1 = next.1;
        }
        adjacent
    });
    let name = |(first, last)| if first == last { format!("{first} alone") } else { format!("{first}-{last}") };
    ranges.into_iter().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confine::user::Writer;

    fn users(map: &[(u32, u32, u32)]) -> Users {
        let map: Vec<_> = map.iter().map(|&(inside, outside, count)| Extent { inside, outside, count }).collect();
        let (uid_map, gid_map) = (map.clone(), map);
        Users {
            uid: 1000,
            gid: 1000,
            uid_map,
            gid_map,
            writer: Writer::Own,
            host_uid: 5000,
            host_gid: 5000,
            mapped: true,
        }
    }

    #[test]
    fn others_are_those_with_a_mapping() {
        let many = users(&[(1000, 5000, 1), (0, 100_000, 1000), (1001, 101_000, 64_536)]);
        assert!(many.has_others());
        assert_eq!(many.other(1000, 1000).unwrap(), None);
        let root = many.other(0, 1000).unwrap().unwrap();
        assert_eq!((root.uid, root.gid, root.host_ids), (0, 1000, (100_000, 5000)));
        assert_eq!(many.other(65_536, 0).unwrap().unwrap().host_ids, (165_535, 100_000));
        let refused = many.other(65_537, 0).unwrap_err();
        assert_eq!((refused.object.as_str(), named_map(&many.uid_map).as_str()), ("user 65537", "0-65536"));
        assert_eq!(many.other(0, u32::MAX).unwrap_err().object, format!("group {}", u32::MAX));
    }

    #[test]
    fn a_sandbox_with_one_user_has_no_other() {
        let one = users(&[(1000, 5000, 1)]);
        assert!(!one.has_others());
        assert_eq!(one.other(1000, 1000).unwrap(), None);
        assert!(one.other(0, 0).unwrap_err().to_string().contains("maps 1000 alone"));
    }
}
