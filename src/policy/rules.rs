//! The values of the `[seccomp]` and `[landlock]` tables and of their flags.

use std::fmt;
use std::path::Path;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use stockade_seccomp::builtin::{Builtin, Group};

use super::path::{HostPath, SandboxPath};
use super::units;
use super::value::{Value, text, written};
use crate::error::nearest;
use crate::plan::{Bytes, PathRule};

/// The seccomp profile, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeccompChoice {
    /// No profile.
    Unconfined,
    /// A built-in profile.
    Builtin(Builtin),
    /// A file of JSON.
    File(HostPath),
    /// A file of compiled BPF.
    Binary(HostPath),
}

/// The name for no profile, as docker's.
const UNCONFINED: &str = "unconfined";

impl Value for SeccompChoice {
    const WHAT: &'static str =
        "a seccomp profile: default, strict, docker, unconfined, or a file (with a slash in it, or .json)";
    const BINARY: bool = true;

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.ends_with(b".bpf") {
            return HostPath::parse(bytes).map(Self::Binary);
        }
        if bytes.contains(&b'/') || bytes.ends_with(b".json") {
            return HostPath::parse(bytes).map(Self::File);
        }
        let name = text(bytes)?;
        if name == UNCONFINED {
            return Ok(Self::Unconfined);
        }
        name.parse().map(Self::Builtin).map_err(|()| {
            let known = || Builtin::ALL.iter().map(|profile| profile.name()).chain([UNCONFINED]);
            let near = nearest(name, known()).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
            let known = known().collect::<Vec<_>>().join(", ");
            format!(
                "{name:?} is not a built-in profile: {near}known: {known}; \
                 a file needs a slash in its path, or a name that ends in .json"
            )
        })
    }
}

impl SeccompChoice {
    /// Makes the path of a file absolute.
    pub fn anchor(&mut self, base: Option<&Path>) -> Result<(), String> {
        match self {
            Self::File(path) | Self::Binary(path) => path.anchor(base),
            Self::Unconfined | Self::Builtin(_) => Ok(()),
        }
    }
}

/// A group of calls that is allowed on top of the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeccompGroup(pub(crate) Group);

impl Value for SeccompGroup {
    const WHAT: &'static str = "a group of system calls: debug, sysv, aio, splice, nested, setuid-bits or nettools";

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let name = text(bytes)?;
        name.parse().map(Self).map_err(|()| {
            let known = || Group::ALL.iter().map(|group| group.name());
            let near = nearest(name, known()).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
            let known = known().collect::<Vec<_>>().join(", ");
            format!("{name:?} is not a group of system calls: {near}known: {known}")
        })
    }
}

/// A language whose interpreter or compiler is shown wherever the caller's `PATH` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Toolchain {
    /// `python3` and `python`.
    Python,
    /// `node`.
    Node,
    /// `cargo` and `rustc`.
    Rust,
    /// `java`.
    Java,
    /// `go`.
    Go,
    /// All of these that exist.
    Auto,
}

/// What happens to a run if the kernel has no Landlock, or an ABI that is too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LandlockMode {
    /// The run is refused.
    Require,
    /// The run uses as much of Landlock as the kernel supports.
    Auto,
    /// The run never uses Landlock.
    Off,
}

/// The number of a Landlock ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LandlockAbi(pub(crate) u32);

impl Value for LandlockAbi {
    const WHAT: &'static str = "the number of a Landlock ABI, from 1 to 999";
    const NUMERIC: bool = true;

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        match units::whole(text(bytes)?)? {
            number @ 1..=999 => Ok(Self(number as u32)),
            number => Err(format!("{number} is not {}", Self::WHAT)),
        }
    }
}

/// A TCP port to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port(pub(crate) u16);

impl Value for Port {
    const WHAT: &'static str = "a port between 1 and 65535";
    const NUMERIC: bool = true;
    const TEXTUAL: bool = false;

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let number = units::whole(text(bytes)?)?;
        let port = u16::try_from(number).ok().filter(|port| *port != 0);
        port.map(Self).ok_or_else(|| format!("{number} is not {}", Self::WHAT))
    }
}

/// A TCP port to bind. 0 is a port that the kernel chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindPort(pub(crate) u16);

impl Value for BindPort {
    const WHAT: &'static str = "a port between 1 and 65535, or 0 for one that the kernel chooses";
    const NUMERIC: bool = true;
    const TEXTUAL: bool = false;

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let number = units::whole(text(bytes)?)?;
        u16::try_from(number).map(Self).map_err(|_| format!("{number} is not {}", Self::WHAT))
    }
}

written! { SeccompChoice SeccompGroup LandlockAbi Port BindPort }

/// A file or directory in the sandbox, for a Landlock rule: `PATH[:optional]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulePath {
    /// Its path.
    pub path: SandboxPath,
    /// Whether the rule is skipped if the path does not exist.
    pub optional: bool,
}

impl RulePath {
    /// The planned rule.
    pub fn rule(&self) -> PathRule {
        PathRule { path: self.path.0.clone(), optional: self.optional }
    }
}

impl Value for RulePath {
    const WHAT: &'static str = "an absolute path inside the sandbox, followed by :optional if it may be missing";

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        // As with volumes, the text after the last colon is an option unless it contains a slash.
        let colon = bytes.iter().rposition(|byte| *byte == b':').filter(|at| !bytes[*at..].contains(&b'/'));
        let (path, optional) = match colon.map(|at| (&bytes[..at], &bytes[at + 1..])) {
            None => (bytes, false),
            Some((path, b"optional")) => (path, true),
            Some((_, word)) => {
                let word = Bytes::from(word.to_vec());
                return Err(format!(
                    "\"{word}\" is not the option `optional`; a path with a colon needs the table form of a policy"
                ));
            }
        };
        Ok(Self { path: SandboxPath::parse(path)?, optional })
    }
}

/// The table form in a policy file.
#[derive(serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RuleTable {
    /// Absolute path in the sandbox.
    path: SandboxPath,
    /// Whether the rule is skipped if the path does not exist.
    #[serde(default)]
    optional: bool,
}

impl<'de> Deserialize<'de> for RulePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RuleVisitor;
        impl<'de> Visitor<'de> for RuleVisitor {
            type Value = RulePath;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(RulePath::WHAT)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<RulePath, E> {
                RulePath::parse(text.as_bytes()).map_err(E::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RulePath, A::Error> {
                let RuleTable { path, optional } = RuleTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RulePath { path, optional })
            }
        }
        deserializer.deserialize_any(RuleVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_a_name_or_a_path() {
        let parse = |text: &str| SeccompChoice::parse(text.as_bytes());
        let path = |text: &str| HostPath(text.into());
        assert_eq!(parse("unconfined"), Ok(SeccompChoice::Unconfined));
        assert_eq!(parse("docker"), Ok(SeccompChoice::Builtin(Builtin::Docker)));
        assert_eq!(parse("docker.json"), Ok(SeccompChoice::File(path("docker.json"))));
        assert_eq!(parse("./default"), Ok(SeccompChoice::File(path("./default"))));
        assert_eq!(parse("a.bpf"), Ok(SeccompChoice::Binary(path("a.bpf"))));
        for text in ["", "Default", "strcit", "builtin", "~/a.json", "$A.json", "a\0.json", "inet"] {
            parse(text).expect_err(text);
        }
    }

    #[test]
    fn a_rule_is_a_path_and_perhaps_optional() {
        let parse = |text: &str| RulePath::parse(text.as_bytes()).map(|rule| (rule.path.0.to_string(), rule.optional));
        assert_eq!(parse("/a/./b/"), Ok(("/a/b".into(), false)));
        assert_eq!(parse("/a:optional"), Ok(("/a".into(), true)));
        assert_eq!(parse("/a:b:optional"), Ok(("/a:b".into(), true)));
        assert_eq!(parse("/a:b/c"), Ok(("/a:b/c".into(), false)));
        assert_eq!(parse("/a:optional:optional"), Ok(("/a:optional".into(), true)));
        assert_eq!(parse("/"), Ok(("/".into(), false)));
        for text in ["", "a", "/a:", "/a:b", "/a:optinal", ":optional", "/a/../b"] {
            parse(text).expect_err(text);
        }
    }

    #[test]
    fn ports_and_abis_are_numbers_in_range() {
        assert_eq!(Port::parse(b"65535"), Ok(Port(65_535)));
        assert_eq!(BindPort::parse(b"0"), Ok(BindPort(0)));
        assert_eq!(LandlockAbi::parse(b"99"), Ok(LandlockAbi(99)));
        for text in ["", "0", "65536", "-1", "http", "80-90", "08", "1.0"] {
            Port::parse(text.as_bytes()).expect_err(text);
        }
        for text in ["0", "1000", "-1", "v2"] {
            LandlockAbi::parse(text.as_bytes()).expect_err(text);
        }
    }
}
