//! Requested mounts: tables in a policy, `-v`, `--mount`, `--tmpfs`, `--ro` and `--rw`.

use serde::Deserialize;

use super::path::{HostPath, SandboxPath};
use super::value::{Amount, Count, Mode, Value};
use crate::plan::{Bytes, Mount, MountKind};

/// The workspace's path in the sandbox.
pub const WORKSPACE: &str = "/workspace";

/// The default limits of a tmpfs. The kernel reads 0 as unlimited.
const TMPFS_SIZE: Amount = Amount(64 << 20);
const TMPFS_INODES: Count = Count(16_384);

/// A requested mount, checked.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "MountTable", rename = "Mount"))]
#[serde(try_from = "MountTable")]
pub struct MountRequest {
    /// Path in the sandbox; `None` for a bind at its source's path, until that path is absolute.
    pub destination: Option<SandboxPath>,
    /// The kind of mount.
    pub kind: RequestKind,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether executing files is refused.
    pub noexec: bool,
    /// Whether the mount is skipped if its source does not exist.
    pub optional: bool,
}

/// The kinds of mount that can be requested.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestKind {
    /// A host file or directory.
    Bind(HostPath),
    /// A new tmpfs.
    Tmpfs {
        /// Its size limit.
        size: Amount,
        /// Its limit on files.
        inodes: Count,
        /// Mode of its root.
        mode: Mode,
    },
}

/// The kinds of mount, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum MountType {
    /// A host file or directory.
    Bind,
    /// A new tmpfs.
    Tmpfs,
}

/// A mount: a bind of a host path, or a new tmpfs.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct MountTable {
    /// The type; `bind` by default.
    #[serde(rename = "type")]
    kind: Option<MountType>,
    /// Host path of a bind.
    source: Option<HostPath>,
    /// Path in the sandbox; for a bind the source's path by default.
    destination: Option<SandboxPath>,
    /// Whether writes are refused; by default true for a bind and false for a tmpfs.
    read_only: Option<bool>,
    /// Whether executing files is refused; by default false for a bind and true for a tmpfs.
    noexec: Option<bool>,
    /// Whether the mount is skipped if the source does not exist.
    optional: Option<bool>,
    /// Size limit of a tmpfs; 64M by default.
    size: Option<Amount>,
    /// Limit on files of a tmpfs; 16384 by default.
    nr_inodes: Option<Count>,
    /// Mode of a tmpfs' root; 1777 by default.
    mode: Option<Mode>,
}

impl TryFrom<MountTable> for MountRequest {
    type Error = String;

    fn try_from(table: MountTable) -> Result<Self, String> {
        let request = match table.kind.unwrap_or(MountType::Bind) {
            MountType::Bind => {
                if table.size.is_some() || table.nr_inodes.is_some() || table.mode.is_some() {
                    return Err("size, nr_inodes and mode need a tmpfs, and this is a bind".into());
                }
                Self {
                    kind: RequestKind::Bind(table.source.ok_or("a bind needs a source")?),
                    destination: table.destination,
                    read_only: table.read_only.unwrap_or(true),
                    noexec: table.noexec.unwrap_or(false),
                    optional: table.optional.unwrap_or(false),
                }
            }
            MountType::Tmpfs => {
                if table.source.is_some() || table.optional.is_some() {
                    return Err("source and optional need a bind, and this is a tmpfs".into());
                }
                Self {
                    kind: RequestKind::Tmpfs {
                        size: table.size.unwrap_or(TMPFS_SIZE),
                        inodes: table.nr_inodes.unwrap_or(TMPFS_INODES),
                        mode: table.mode.unwrap_or(Mode(0o1777)),
                    },
                    destination: Some(table.destination.ok_or("a tmpfs needs a destination")?),
                    read_only: table.read_only.unwrap_or(false),
                    noexec: table.noexec.unwrap_or(true),
                    optional: false,
                }
            }
        };
        if let Some(destination) = &request.destination {
            allowed(&destination.0)?;
        }
        Ok(request)
    }
}

/// Refuses destinations that the sandbox provides itself, and `/`, for which there is `--rootfs`.
pub(super) fn allowed(destination: &Bytes) -> Result<(), String> {
    let path = destination.as_bytes();
    match path {
        b"/" => Err("/ cannot be a mount's destination: use rootfs".into()),
        b"/dev" => Err("the sandbox provides /dev itself: use devices".into()),
        b"/sys" => Err("/sys cannot be a mount's destination: use sysfs".into()),
        b"/dev/shm" | b"/dev/mqueue" => Ok(()),
        _ if path == b"/proc" || path.starts_with(b"/proc/") => Err("the sandbox provides /proc itself".into()),
        _ if path.starts_with(b"/dev/") => Err("the sandbox provides /dev itself: use devices".into()),
        _ => Ok(()),
    }
}

impl MountRequest {
    /// `--ro` and `--rw`: a bind at its source's path.
    pub fn same_path(path: &[u8], read_only: bool) -> Result<Self, String> {
        let source = HostPath::parse(path)?;
        Ok(Self { destination: None, kind: RequestKind::Bind(source), read_only, noexec: false, optional: false })
    }

    /// `-v SRC[:DST][:ro|rw,noexec,optional]`. The last part is options if it does not start with a slash. Paths with a
    /// colon need `--mount`.
    pub fn volume(text: &[u8]) -> Result<Self, String> {
        let mut parts: Vec<&[u8]> = text.split(|byte| *byte == b':').collect();
        let mut table = MountTable { read_only: Some(false), ..MountTable::default() };
        if parts.len() > 1 && !parts[parts.len() - 1].starts_with(b"/") {
            let mut access = None;
            for word in parts.pop().unwrap_or_default().split(|byte| *byte == b',') {
                match word {
                    b"ro" | b"rw" if access.replace(word).is_some_and(|other| other != word) => {
                        return Err("is both ro and rw".into());
                    }
                    b"ro" => table.read_only = Some(true),
                    b"rw" => table.read_only = Some(false),
                    b"noexec" => table.noexec = Some(true),
                    b"optional" => table.optional = Some(true),
                    _ => {
                        let word = Bytes::from(word.to_vec());
                        return Err(format!(
                            "\"{word}\" is not ro, rw, noexec or optional, nor an absolute path inside"
                        ));
                    }
                }
            }
        }
        match parts.as_slice() {
            [source] => table.source = Some(HostPath::parse(source)?),
            [source, destination] => {
                table.source = Some(HostPath::parse(source).map_err(|reason| format!("the source: {reason}"))?);
                table.destination =
                    Some(SandboxPath::parse(destination).map_err(|reason| format!("the destination: {reason}"))?);
            }
            _ => return Err("has too many colons: use SRC[:DST][:OPTIONS], or --mount for paths with colons".into()),
        }
        Self::try_from(table)
    }

    /// `--mount type=bind|tmpfs,source=,destination=,readonly,…` with docker's names and their abbreviations.
    pub fn mount_flag(text: &[u8]) -> Result<Self, String> {
        let mut table = MountTable::default();
        let mut seen: Vec<&str> = Vec::new();
        for field in text.split(|byte| *byte == b',') {
            let equals = field.iter().position(|byte| *byte == b'=');
            let (key, value) = match equals {
                Some(at) => (&field[..at], Some(&field[at + 1..])),
                None => (field, None),
            };
            let name = match key {
                b"type" => "type",
                b"source" | b"src" => "source",
                b"destination" | b"dst" | b"target" => "destination",
                b"readonly" | b"ro" => "readonly",
                b"noexec" => "noexec",
                b"optional" => "optional",
                b"tmpfs-size" | b"size" => "size",
                b"tmpfs-mode" | b"mode" => "mode",
                b"nr_inodes" => "nr_inodes",
                _ => return Err(unknown_field(key)),
            };
            if seen.contains(&name) {
                return Err(format!("{name} is given twice"));
            }
            seen.push(name);
            let in_field = |reason: String| format!("{name}: {reason}");
            let needed = || value.ok_or_else(|| format!("{name} needs a value: {name}=…"));
            match name {
                "type" => {
                    table.kind = Some(match needed()? {
                        b"bind" => MountType::Bind,
                        b"tmpfs" => MountType::Tmpfs,
                        other => {
                            return Err(format!("type: \"{}\" is not bind or tmpfs", Bytes::from(other.to_vec())));
                        }
                    })
                }
                "source" => table.source = Some(HostPath::parse(needed()?).map_err(in_field)?),
                "destination" => table.destination = Some(SandboxPath::parse(needed()?).map_err(in_field)?),
                "size" => table.size = Some(Amount::parse(needed()?).map_err(in_field)?),
                "mode" => table.mode = Some(Mode::parse(needed()?).map_err(in_field)?),
                "nr_inodes" => table.nr_inodes = Some(Count::parse(needed()?).map_err(in_field)?),
                "readonly" => table.read_only = Some(truth(value).map_err(in_field)?),
                "noexec" => table.noexec = Some(truth(value).map_err(in_field)?),
                _ => table.optional = Some(truth(value).map_err(in_field)?),
            }
        }
        // As with docker, this flag requires a type, and its mounts are writable by default.
        if table.kind.is_none() {
            return Err("needs type=bind or type=tmpfs".into());
        }
        table.read_only.get_or_insert(false);
        Self::try_from(table)
    }

    /// `--tmpfs DST[:size=,nr_inodes=,mode=,exec,ro]`.
    pub fn tmpfs(text: &[u8]) -> Result<Self, String> {
        let at = text.iter().position(|byte| *byte == b':');
        let (destination, options) = match at {
            Some(at) => (&text[..at], Some(&text[at + 1..])),
            None => (text, None),
        };
        let mut table = MountTable { kind: Some(MountType::Tmpfs), ..MountTable::default() };
        table.destination = Some(SandboxPath::parse(destination)?);
        for word in options.into_iter().flat_map(|options| options.split(|byte| *byte == b',')) {
            match word.iter().position(|byte| *byte == b'=').map(|at| (&word[..at], &word[at + 1..])) {
                Some((b"size", value)) => {
                    table.size = Some(Amount::parse(value).map_err(|why| format!("size: {why}"))?)
                }
                Some((b"mode", value)) => table.mode = Some(Mode::parse(value).map_err(|why| format!("mode: {why}"))?),
                Some((b"nr_inodes", value)) => {
                    table.nr_inodes = Some(Count::parse(value).map_err(|why| format!("nr_inodes: {why}"))?)
                }
                None if word == b"exec" => table.noexec = Some(false),
                None if word == b"noexec" => table.noexec = Some(true),
                None if word == b"ro" => table.read_only = Some(true),
                None if word == b"rw" => table.read_only = Some(false),
                _ => {
                    let word = Bytes::from(word.to_vec());
                    return Err(format!("\"{word}\" is not size=, nr_inodes=, mode=, exec, noexec, ro or rw"));
                }
            }
        }
        Self::try_from(table)
    }

    /// Makes the source absolute, and sets the destination of a bind at its source's path.
    pub fn anchor(&mut self, base: Option<&std::path::Path>) -> Result<(), String> {
        if let RequestKind::Bind(source) = &mut self.kind {
            source.anchor(base)?;
            if self.destination.is_none() {
                let destination = SandboxPath::parse(source.0.as_bytes())?;
                allowed(&destination.0)?;
                self.destination = Some(destination);
            }
        }
        Ok(())
    }

    /// The planned mount. `None` if [`Self::anchor`] was not called.
    pub fn into_mount(self) -> Option<Mount> {
        let kind = match self.kind {
            RequestKind::Bind(source) => MountKind::Bind { source: source.0 },
            RequestKind::Tmpfs { size, inodes, mode } => {
                MountKind::Tmpfs { size_bytes: size.0, nr_inodes: inodes.0, mode: mode.0 }
            }
        };
        let destination = self.destination?.0;
        Some(Mount { destination, kind, read_only: self.read_only, noexec: self.noexec, optional: self.optional })
    }
}

/// `ro`, `ro=true`, `ro=1`, and their opposites.
fn truth(value: Option<&[u8]>) -> Result<bool, String> {
    match value {
        None | Some(b"true" | b"1") => Ok(true),
        Some(b"false" | b"0") => Ok(false),
        Some(other) => Err(format!("\"{}\" is not true or false", Bytes::from(other.to_vec()))),
    }
}

fn unknown_field(key: &[u8]) -> String {
    let key = Bytes::from(key.to_vec()).to_string();
    let known = ["type", "source", "destination", "readonly", "noexec", "optional", "size", "mode", "nr_inodes"];
    let near = crate::error::nearest(&key, known.into_iter()).map(|near| format!(": did you mean {near}?"));
    format!("\"{key}\" is not an option of a mount{}", near.unwrap_or_else(|| format!("; known: {}", known.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(request: Result<MountRequest, String>) -> (String, Option<String>, bool, bool, bool) {
        let request = request.unwrap();
        let RequestKind::Bind(source) = request.kind else { panic!("not a bind") };
        let destination = request.destination.map(|path| path.0.to_string());
        (source.0.to_string(), destination, request.read_only, request.noexec, request.optional)
    }

    #[test]
    fn volumes_are_dockers() {
        let volume = |text: &str| bind(MountRequest::volume(text.as_bytes()));
        assert_eq!(volume("/a"), ("/a".into(), None, false, false, false));
        assert_eq!(volume("a"), ("a".into(), None, false, false, false));
        assert_eq!(volume("/a:ro"), ("/a".into(), None, true, false, false));
        assert_eq!(volume("/a:/b"), ("/a".into(), Some("/b".into()), false, false, false));
        assert_eq!(volume("a:/b//./c/:ro,noexec,optional"), ("a".into(), Some("/b/c".into()), true, true, true));
        for text in [
            "",
            ":/b",
            "/a:",
            "/a:b",
            "/a:/b:",
            "/a:/b:xx",
            "/a:/b:ro,rw",
            "/a:/b:/c",
            "/a:/b/../c",
            "/a:/",
            "/a:/proc",
            "/a:/proc/self",
            "/a:/dev",
            "/a:/dev/sda",
            "/a:/b:ro:rw",
            "~/a:/b",
            "$HOME:/b",
            "/a:/sys",
        ] {
            MountRequest::volume(text.as_bytes()).expect_err(text);
        }
    }

    #[test]
    fn mount_flags_are_dockers() {
        let mount = |text: &str| bind(MountRequest::mount_flag(text.as_bytes()));
        assert_eq!(mount("type=bind,src=/a:b,dst=/c,ro"), ("/a:b".into(), Some("/c".into()), true, false, false));
        assert!(!mount("type=bind,source=/a,target=/c,readonly=false").2);
        for text in [
            "",
            "type=bind",
            "type=volume,src=a,dst=/b",
            "src=/a,dst=/b",
            "type=bind,src=/a,dst=b",
            "type=tmpfs",
            "type=bind,src=/a,src=/b,dst=/c",
            "type=bind,src=/a,source=/b",
            "type=bind,src=/a,dst=/b,foo",
            "type",
            "type=tmpfs,dst=/a,src=/b",
            "type=tmpfs,dst=/a,size=0",
            "type=tmpfs,dst=/a,size=-1",
            "type=bind,src=/a,ro=maybe",
            "type=tmpfs,dst=/a,mode=999",
            "type=tmpfs,dst=/a,size=1e3",
            "type=tmpfs,dst=/a,size=99999999999g",
            "type=tmpfs,dst=/a,nr_inodes=0",
            "type=bind,src=/a,dst=/b,size=1M",
            ",",
            "type=bind,,src=/a,dst=/b",
        ] {
            MountRequest::mount_flag(text.as_bytes()).expect_err(text);
        }
    }

    #[test]
    fn tmpfs_is_bounded_and_noexec_by_default() {
        let request = MountRequest::tmpfs(b"/scratch:size=1M,mode=700,exec").unwrap();
        assert_eq!(request.kind, RequestKind::Tmpfs { size: Amount(1 << 20), inodes: TMPFS_INODES, mode: Mode(0o700) });
        assert!(!request.noexec && !request.read_only);
        assert!(MountRequest::tmpfs(b"/scratch").unwrap().noexec);
        for text in ["", "a", "/", "/a:", "/a:size", "/a:size=", "/a:size=0", "/a:foo=1", "/a:mode=4755", "/proc/x"] {
            MountRequest::tmpfs(text.as_bytes()).expect_err(text);
        }
    }
}
