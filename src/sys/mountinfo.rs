//! The only parser of `proc_pid_mountinfo(5)`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use super::mount::{NODEV, NOEXEC, NOSUID, RDONLY};

/// This process's own mounts.
pub const OWN: &str = "/proc/self/mountinfo";

/// One mount: `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG…] - TYPE SOURCE SUPER_OPTIONS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    /// Its mount id.
    pub id: u64,
    /// The mount id of its parent.
    pub parent: u64,
    /// The device of its file system, `MAJOR:MINOR`.
    pub device: &'a str,
    /// The type of its file system.
    pub kind: &'a str,
    /// Whether it propagates mount events.
    pub shared: bool,
    root: &'a [u8],
    point: &'a [u8],
    options: &'a [u8],
    super_options: &'a [u8],
}

/// All mounts of a text, in order. Lines that do not have the kernel's format are skipped.
pub fn parse(text: &[u8]) -> impl DoubleEndedIterator<Item = Mount<'_>> {
    text.split(|byte| *byte == b'\n').filter_map(line)
}

fn line(line: &[u8]) -> Option<Mount<'_>> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut field = || fields.next();
    let word = |bytes| std::str::from_utf8(bytes).ok();
    let (id, parent) = (word(field()?)?.parse().ok()?, word(field()?)?.parse().ok()?);
    let device = word(field()?)?;
    let (root, point, options) = (field()?, field()?, field()?);
    let tags = fields.by_ref().take_while(|field| *field != b"-");
    let shared = tags.filter(|tag| tag.starts_with(b"shared:")).count() > 0; // consumes all tags, to reach the fields behind them
    let kind = word(fields.next()?)?;
    let super_options = fields.nth(1).unwrap_or_default();
    Some(Mount { id, parent, device, kind, shared, root, point, options, super_options })
}

impl Mount<'_> {
    /// The part of the file system that is mounted; for a namespace file, its name.
    pub fn root(&self) -> PathBuf {
        unescaped(self.root)
    }

    /// The mount point, as seen from the root of the process whose file this is.
    pub fn point(&self) -> PathBuf {
        unescaped(self.point)
    }

    /// Its `MOUNT_ATTR_*`. A mount of a read-only file system is read-only.
    pub fn attributes(&self) -> u64 {
        let whole = if options(self.super_options).any(|option| option == b"ro") { RDONLY } else { 0 };
        options(self.options).fold(whole, |attributes, option| attributes | attribute(option))
    }

    /// Options of the file system.
    pub fn super_options(&self) -> impl Iterator<Item = &[u8]> {
        options(self.super_options)
    }
}

fn options(field: &[u8]) -> impl Iterator<Item = &[u8]> {
    field.split(|byte| *byte == b',')
}

fn attribute(option: &[u8]) -> u64 {
    match option {
        b"ro" => RDONLY,
        b"nosuid" => NOSUID,
        b"nodev" => NODEV,
        b"noexec" => NOEXEC,
        b"noatime" => libc::MOUNT_ATTR_NOATIME,
        b"nodiratime" => libc::MOUNT_ATTR_NODIRATIME,
        b"nosymfollow" => libc::MOUNT_ATTR_NOSYMFOLLOW,
        _ => 0,
    }
}

/// In mountinfo a blank, a line end, a backslash and `#` are escaped as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, more @ ..] = rest {
        match (first, more) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use super::*;

    #[test]
    fn any_line_can_be_parsed() {
        let text =
            b"36 35 98:0 /mnt1\\134x /mnt\\0402 rw,noatime master:1 shared:2 - ext3 /dev/root ro,errors=continue";
        let [mount] = parse(text).collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((mount.id, mount.parent, mount.device, mount.kind, mount.shared), (36, 35, "98:0", "ext3", true));
        assert_eq!((mount.root(), mount.point()), ("/mnt1\\x".into(), "/mnt 2".into()));
        assert_eq!(mount.attributes(), RDONLY | libc::MOUNT_ATTR_NOATIME, "its file system is read-only");
        assert_eq!(mount.super_options().collect::<Vec<_>>(), [&b"ro"[..], b"errors=continue"]);
        for end in 0..text.len() {
            let _ = parse(&text[..end]).count();
        }
        assert_eq!(parse(b"junk\n\n1 2 3\nx 1 0:1 / / rw - a b c\n1 2 0:1 / / rw shared:1\n").count(), 0);
    }

    #[test]
    fn escapes_are_octal_and_whole() {
        assert_eq!(unescaped(b"a\\134b\\011\\012"), Path::new("a\\b\t\n"));
        assert_eq!(unescaped(b"/a\\04"), Path::new("/a\\04"));
        assert_eq!(unescaped(b"/a\\999"), Path::new("/a\\999"));
        assert_eq!(unescaped("/\u{fc}".as_bytes()).as_os_str().as_bytes(), "/\u{fc}".as_bytes());
    }
}
