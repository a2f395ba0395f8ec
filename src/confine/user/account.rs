//! What `/etc/passwd` in a sandbox says of a user, `passwd(5)`.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use nix::fcntl::{AT_FDCWD, OFlag};
use nix::sys::stat::fstat;

use crate::sys::mount::{NO_MAGICLINKS, open_beneath};

/// Most bytes of the file that are read.
const MAX_BYTES: u64 = 1 << 20;

/// An account.
#[derive(Debug, PartialEq, Eq)]
pub struct Account {
    /// Its login name; `None` for a user that is not there.
    pub name: Option<Vec<u8>>,
    /// Its home directory; `/root` or `/` for a user that is not there or has none.
    pub home: Vec<u8>,
}

/// Reads it from `/etc/passwd` in this process's root.
pub fn of(uid: u32) -> Account {
    let (name, home) = accounts().and_then(|text| find(&text, uid)).unwrap_or_default();
    let default = || if uid == 0 { b"/root".to_vec() } else { b"/".to_vec() };
    let named = |text: &Vec<u8>| !text.is_empty() && !text.contains(&0);
    Account { name: Some(name).filter(named), home: Some(home).filter(named).unwrap_or_else(default) }
}

/// The contents of the file, if it is a regular one: an image may contain a FIFO.
fn accounts() -> Option<Vec<u8>> {
    let is_regular = |file: &OwnedFd| fstat(file).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG);
    let open =
        |flags: OFlag| open_beneath(AT_FDCWD, c"/etc/passwd", flags.bits(), NO_MAGICLINKS).ok().filter(is_regular);
    open(OFlag::O_PATH)?;
    let file = open(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)?;
    let mut text = Vec::new();
    File::from(file).take(MAX_BYTES).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Name and home in the first line with this user that has a home.
fn find(text: &[u8], uid: u32) -> Option<(Vec<u8>, Vec<u8>)> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next()?;
        let number = fields.nth(1)?; // name, password, user, group, description, home, shell
        let home = fields.nth(2)?;
        let is_user = std::str::from_utf8(number).is_ok_and(|text| text.parse() == Ok(uid));
        (is_user && !home.is_empty() && !home.contains(&0)).then(|| (name.to_vec(), home.to_vec()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_with_the_user_and_a_home_counts() {
        let text = b"root:x:0:0:root:/root:/bin/sh\nshort:x:7\n:x:7:7::/seven\nbad:x:x:1:::\nempty:x:8:8::\ntwo:x:7:7::/two:\n";
        assert_eq!(find(text, 0), Some((b"root".to_vec(), b"/root".to_vec())));
        assert_eq!(find(text, 7), Some((Vec::new(), b"/seven".to_vec())));
        assert_eq!(find(text, 8), None);
        assert_eq!(find(b"a:x:5:5::/h\0x:", 5), None);
    }
}
