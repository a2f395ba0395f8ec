//! The values of a policy. Each type holds only valid values.
//!
//! Every value has one parser from bytes, used for both flags and files, so that both accept the same text and return the
//! same errors. In a file a value is a string, or for some types a number. Paths and environment values that are not UTF-8
//! are written `{ hex = "…" }`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::units;
use crate::plan::{Bytes, Capability, IdMapping, unhex};

/// A value that is parsed from text.
pub trait Value: Sized {
    /// A description for messages: "a size".
    const WHAT: &'static str;
    /// Whether a file may write it as a number.
    const NUMERIC: bool = false;
    /// Whether a file may write it as a string.
    const TEXTUAL: bool = true;
    /// Whether it may be any bytes, so that files may write it as `{ hex = "…" }`.
    const BINARY: bool = false;

    /// Parses the text. The error is the reason.
    fn parse(bytes: &[u8]) -> Result<Self, String>;
}

/// The bytes as UTF-8 text.
pub(super) fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("\"{}\" is not UTF-8", Bytes::from(bytes.to_vec())))
}

pub(super) struct Written<T>(pub(super) PhantomData<T>);

impl<'de, T: Value> Visitor<'de> for Written<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        match T::TEXTUAL {
            true => T::parse(text.as_bytes()).map_err(E::custom),
            false => Err(E::custom(format!("{text:?} is a string; expected {}", T::WHAT))),
        }
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.number(number.to_string())
    }
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.number(number.to_string())
    }
    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        // Debug keeps the point or exponent, so that 1.0 is not read as the whole number 1.
        self.number(format!("{number:?}"))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let wrong = || de::Error::custom(format!("a table is not {}", T::WHAT));
        match (T::BINARY, map.next_entry::<String, String>()?) {
            (true, Some((key, hex))) if key == "hex" => match (unhex(&hex), map.next_key::<String>()?) {
                (Some(bytes), None) => T::parse(&bytes).map_err(de::Error::custom),
                _ => Err(de::Error::custom("hex must be an even number of hexadecimal digits, and the only key")),
            },
            _ => Err(wrong()),
        }
    }
}

impl<T: Value> Written<T> {
    fn number<E: de::Error>(self, number: String) -> Result<T, E> {
        match T::NUMERIC {
            true => T::parse(number.as_bytes()).map_err(E::custom),
            false => Err(E::custom(format!("{number} is a number; expected {}", T::WHAT))),
        }
    }
}

macro_rules! written {
    ($($type:ident)+) => {$(
        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> ::std::result::Result<Self, D::Error> {
                deserializer.deserialize_any($crate::policy::value::Written::<Self>(std::marker::PhantomData))
            }
        }
    )+};
}

pub(super) use written;

written! {
    Version Size Duration Amount Deadline Cpus Count Pids Weight Id Umask Mode OomScoreAdj Hostname UserName UserMap EnvName
    EnvPattern EnvValue CpuList CapabilityName
}

/// A limit, or `"unlimited"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit<T> {
    /// No bound.
    Unlimited,
    /// This bound.
    At(T),
}

impl<T: Value> Value for Limit<T> {
    const WHAT: &'static str = T::WHAT;
    const NUMERIC: bool = T::NUMERIC;

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        match bytes {
            b"unlimited" => Ok(Self::Unlimited),
            _ => T::parse(bytes).map(Self::At),
        }
    }
}

impl<'de, T: Value> Deserialize<'de> for Limit<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written::<Self>(PhantomData))
    }
}

impl<T> Limit<T> {
    /// The bound, if there is one.
    pub fn bound(self) -> Option<T> {
        match self {
            Self::Unlimited => None,
            Self::At(bound) => Some(bound),
        }
    }
}

/// The version of the policy format: 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version;

impl Value for Version {
    const WHAT: &'static str = "the version of the policy format, the number 1";
    const NUMERIC: bool = true;
    const TEXTUAL: bool = false;
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        match bytes {
            b"1" => Ok(Self),
            _ => Err(format!("version {} is unknown: this program reads version 1", Bytes::from(bytes.to_vec()))),
        }
    }
}

macro_rules! values {
    ($($(#[$doc:meta])* $name:ident($inner:ty) = $what:literal, $numeric:literal, $parse:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub(crate) $inner);
        impl Value for $name {
            const WHAT: &'static str = $what;
            const NUMERIC: bool = $numeric;
            fn parse(bytes: &[u8]) -> Result<Self, String> {
                let parse: fn(&str) -> Result<$inner, String> = $parse;
                parse(text(bytes)?).map(Self)
            }
        }
        impl $name {
            /// The number.
            pub fn get(self) -> $inner {
                self.0
            }
        }
    )+};
}

values! {
    /// Bytes.
    Size(u64) = "a size such as 512M: bytes, or K, M, G, T (powers of 1024)", true, units::size;
    /// Bytes, at least one: where 0 would mean "unlimited" to the kernel, or nothing at all.
    Amount(u64) = "a size such as 512M: bytes, or K, M, G, T (powers of 1024)", true, |text| match units::size(text)? {
        0 => Err("0 is not a valid size: use at least 1".into()),
        bytes => Ok(bytes),
    };
    /// Microseconds, at least one.
    Deadline(u64) = "a duration such as 30s: ms, s, m, h (plain: seconds)", true, |text| match units::duration(text)? {
        0 => Err("0 is not a valid time limit; use \"unlimited\" for none".into()),
        us => Ok(us),
    };
    /// Microseconds.
    Duration(u64) = "a duration such as 30s: ms, s, m, h (plain: seconds)", true, units::duration;
    /// Microseconds of CPU time in 100 ms.
    Cpus(u64) = "a number of CPUs such as 0.5", true, units::cpus;
    /// At least one.
    Count(u64) = "a number of at least 1", true, |text| match units::whole(text)? {
        0 => Err("0 is not at least 1".into()),
        number => Ok(number),
    };
    /// Processes and threads: at least one, at most the kernel's PID_MAX_LIMIT.
    Pids(u64) = "a number of processes and threads", true, |text| match units::whole(text)? {
        0 => Err("0 is not a valid limit on processes; use \"unlimited\" for none".into()),
        number if number > units::MAX_PIDS => Err(format!("{number} is more than Linux supports: at most {}", units::MAX_PIDS)),
        number => Ok(number),
    };
    /// A share of a resource under contention. The kernel's default is 100.
    Weight(u64) = "a weight from 1 to 10000", true, |text| match units::whole(text)? {
        weight @ 1..=10_000 => Ok(weight),
        other => Err(format!("{other} is not a weight: 1 to 10000")),
    };
    /// A user or group id.
    Id(u32) = "an id between 0 and 4294967294", true, units::id;
    /// A file mode creation mask.
    Umask(u32) = "a umask in octal, a string such as \"022\"", false, |text| units::octal(text, 0o777);
    /// Permission bits of a directory, without set-user-ID and set-group-ID.
    Mode(u32) = "a mode in octal, a string such as \"1777\"", false, |text| units::octal(text, 0o1777);
    /// `/proc/PID/oom_score_adj`.
    OomScoreAdj(i16) = "a number between -1000 and 1000", true, |text| units::signed(text, -1000, 1000);
}

/// A host name: letters, digits, dots and dashes, at most 64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hostname(pub(crate) String);

impl Value for Hostname {
    const WHAT: &'static str = "a host name of at most 64 letters, digits, dots and dashes";
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let name = text(bytes)?;
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        match bytes.len() <= 64 && bytes.iter().all(|b| inner(*b)) && ends(bytes.first()) && ends(bytes.last()) {
            true => Ok(Self(name.into())),
            false => Err(format!("{name:?} is not {}", Self::WHAT)),
        }
    }
}

/// A login name, as the generated passwd file can hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserName(pub(crate) String);

impl Value for UserName {
    const WHAT: &'static str = "a login name of at most 32 of a-z, 0-9, _ and -";
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let name = text(bytes)?;
        let first = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'_';
        let rest = |byte: &u8| first(byte) || byte.is_ascii_digit() || *byte == b'-';
        match bytes.len() <= 32 && bytes.first().is_some_and(first) && bytes.iter().all(rest) {
            true => Ok(Self(name.into())),
            false => Err(format!("{name:?} is not {}", Self::WHAT)),
        }
    }
}

/// How ids in the sandbox map to host ids: `single`, `subordinate` or `host:UID[:GID]`.
#[derive(Clone, Debug, PartialEq)]
pub struct UserMap(pub(crate) IdMapping);

impl Value for UserMap {
    const WHAT: &'static str = "one of single, subordinate and host:UID[:GID]";
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        match text(bytes)? {
            "single" => Ok(Self(IdMapping::Single)),
            "subordinate" => Ok(Self(IdMapping::Subordinate)),
            other => match other.strip_prefix("host:") {
                Some(ids) => Self::host(ids),
                None => Err(format!("{other:?} is not {}", Self::WHAT)),
            },
        }
    }
}

impl UserMap {
    /// One host user and group. Root is refused.
    pub fn host(ids: &str) -> Result<Self, String> {
        match units::id_pair(ids)? {
            (0, _) => Err("host user 0 is root: choose an unprivileged host user".into()),
            (_, 0) => Err("host group 0 is root's group: choose an unprivileged host group".into()),
            (uid, gid) => Ok(Self(IdMapping::HostUser { uid, gid })),
        }
    }
}

/// The name of an environment variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvName(pub(crate) Bytes);

impl Value for EnvName {
    const WHAT: &'static str = "the name of an environment variable";
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let name = Bytes::from(bytes.to_vec());
        if bytes.is_empty() {
            Err("the name of the variable is empty".into())
        } else if bytes.iter().any(|byte| *byte == b'=' || byte.is_ascii_control() || *byte == b' ') {
            Err(format!("\"{name}\" is not {}: it contains a blank, a control character or \"=\"", Self::WHAT))
        } else {
            Ok(Self(name))
        }
    }
}

/// A variable to pass: a name, or a prefix followed by `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvPattern(pub(crate) Bytes);

impl Value for EnvPattern {
    const WHAT: &'static str = "the name of an environment variable, or a prefix followed by *";
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let name = EnvName::parse(bytes)?.0;
        let star = bytes.iter().position(|byte| *byte == b'*');
        if bytes == b"*" {
            Err("\"*\" would pass every variable: use `keep = true`".into())
        } else if star.is_some_and(|at| at + 1 != bytes.len()) {
            Err(format!("\"{name}\" contains a \"*\" that is not at its end"))
        } else {
            Ok(Self(name))
        }
    }
}

/// The value of an environment variable: any bytes except NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvValue(pub(crate) Bytes);

impl Value for EnvValue {
    const WHAT: &'static str = "the value of an environment variable, a string";
    const BINARY: bool = true;
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        match bytes.contains(&0) {
            true => Err("the value contains a NUL byte".into()),
            false => Ok(Self(bytes.to_vec().into())),
        }
    }
}

/// CPUs or NUMA nodes: numbers and ranges, as the kernel lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(pub(crate) String);

impl Value for CpuList {
    const WHAT: &'static str = "a list such as 0-3,7";
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let list = text(bytes)?;
        let number = |text: &str| units::whole(text).ok().filter(|number| *number < 65_536);
        let valid = list.split(',').all(|part| match part.split_once('-') {
            Some((first, last)) => number(first).zip(number(last)).is_some_and(|(first, last)| first <= last),
            None => number(part).is_some(),
        });
        if valid { Ok(Self(list.into())) } else { Err(format!("{list:?} is not {}", Self::WHAT)) }
    }
}

/// Capabilities by name: one, with or without `CAP_`, or `ALL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapabilityName(pub(crate) Vec<Capability>);

impl Value for CapabilityName {
    const WHAT: &'static str = "the name of a capability, or ALL";
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let name = text(bytes)?;
        let upper = name.to_ascii_uppercase();
        if upper == "ALL" {
            return Ok(Self(Capability::all()));
        }
        match Capability::from_word(name) {
            Some(capability) => Ok(Self(vec![capability])),
            None => {
                let known: Vec<_> = Capability::all().iter().map(ToString::to_string).collect();
                let short = |name| str::trim_start_matches(name, "CAP_");
                let near = crate::error::nearest(short(&upper), known.iter().map(|name| short(name)));
                Err(format!(
                    "{name:?} is not a capability{}",
                    near.map(|name| format!(": did you mean {name}?")).unwrap_or_default()
                ))
            }
        }
    }
}
