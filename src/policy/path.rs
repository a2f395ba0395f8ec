//! The paths of a policy: host paths, sandbox paths and device nodes.

use std::path::{Component, Path, PathBuf};

use super::value::{Value, written};
use crate::plan::Bytes;

/// The longest path that the kernel accepts, `PATH_MAX` without its NUL.
const PATH_MAX: usize = 4095;

/// Longest component of a path, `NAME_MAX`.
const NAME_MAX: usize = 255;

written! { HostPath SandboxPath DevicePath }

/// A path on the host. It may be relative until [`HostPath::anchor`] makes it absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath(pub(crate) Bytes);

impl Value for HostPath {
    const WHAT: &'static str = "a path on the host";
    const BINARY: bool = true;
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let path = path(bytes)?;
        // A shell expands these. Taken literally they are almost always a mistake.
        match bytes {
            [b'~'] | [b'~', b'/', ..] | [b'$', ..] => Err(format!("\"{path}\" is not expanded: write the full path")),
            _ => Ok(Self(path)),
        }
    }
}

impl HostPath {
    /// Makes the path absolute. A relative path starts in `base`. `base` contains no symlinks, so a leading `..` can be
    /// resolved as text.
    pub fn anchor(&mut self, base: Option<&Path>) -> Result<(), String> {
        if self.0.as_bytes().starts_with(b"/") {
            return Ok(());
        }
        let base =
            base.ok_or_else(|| format!("\"{}\" is a relative path, but there is no directory to start in", self.0))?;
        let mut absolute = PathBuf::from(base);
        let mut leading = true;
        for component in self.0.as_path().components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir if leading => {
                    absolute.pop();
                }
                other => {
                    leading = false;
                    absolute.push(other);
                }
            }
        }
        self.0 = path(Bytes::from(&absolute).as_bytes())?;
        Ok(())
    }
}

/// An absolute path inside the sandbox, without `.`, `..` or empty components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPath(pub(crate) Bytes);

impl Value for SandboxPath {
    const WHAT: &'static str = "an absolute path inside the sandbox";
    const BINARY: bool = true;
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let path = path(bytes)?;
        if !bytes.starts_with(b"/") {
            return Err(format!("\"{path}\" is not an absolute path"));
        }
        let mut normal = Vec::with_capacity(bytes.len());
        for component in bytes.split(|byte| *byte == b'/') {
            match component {
                b"" | b"." => {}
                b".." => return Err(format!("\"{path}\" contains \"..\"")),
                name => {
                    normal.push(b'/');
                    normal.extend(name);
                }
            }
        }
        Ok(Self(if normal.is_empty() { "/".as_bytes().to_vec().into() } else { normal.into() }))
    }
}

/// A device node below `/dev`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePath(pub(crate) Bytes);

impl Value for DevicePath {
    const WHAT: &'static str = "a device node below /dev";
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let path = SandboxPath::parse(bytes)?.0;
        match path.as_bytes().starts_with(b"/dev/") && !bytes.contains(&b':') {
            true => Ok(Self(path)),
            false => Err(format!("\"{path}\" is not {}", Self::WHAT)),
        }
    }
}

/// The checks for every path.
fn path(bytes: &[u8]) -> Result<Bytes, String> {
    let path = Bytes::from(bytes.to_vec());
    if bytes.is_empty() {
        Err("is empty".into())
    } else if bytes.contains(&0) {
        Err(format!("\"{path}\" contains a NUL byte"))
    } else if bytes.len() > PATH_MAX {
        Err(format!("is {} bytes long; a path has at most {PATH_MAX}", bytes.len()))
    } else if bytes.split(|byte| *byte == b'/').any(|name| name.len() > NAME_MAX) {
        Err(format!("has a component longer than {NAME_MAX} bytes"))
    } else {
        Ok(path)
    }
}

/// Whether `path` is `directory` or below it. Both are normalised, and neither is `/`.
pub(super) fn is_within(path: &Bytes, directory: &Bytes) -> bool {
    let rest = path.as_bytes().strip_prefix(directory.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
