//! Parses resource limits: `SOFT[:HARD]`.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};

use super::units;
use super::value::Value;
use crate::plan::{Rlimit, RlimitResource};

/// The core limit of a workload without core dumps, in bytes. With 0 the kernel writes no file, but still starts the helper
/// of `core_pattern`. With 1 it does neither: `coredump_pipe` in the kernel's `fs/coredump.c`.
pub const NO_CORE: u64 = 1;

/// One resource limit without its name. `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ulimit {
    /// The limit in force.
    pub soft: Option<u64>,
    /// The value that the workload may raise it to.
    pub hard: Option<u64>,
    /// Whether it is lowered to the caller's hard limit if that is smaller; otherwise that is an error.
    pub clamp: bool,
}

impl Ulimit {
    /// The planned limit of this resource.
    pub fn of(self, resource: RlimitResource) -> Rlimit {
        let effective =
            |bound| if resource == RlimitResource::Core && bound == Some(0) { Some(NO_CORE) } else { bound };
        Rlimit { resource, soft: effective(self.soft), hard: effective(self.hard), clamp: self.clamp }
    }

    fn ordered(self) -> Result<Self, String> {
        match (self.soft, self.hard) {
            (Some(soft), Some(hard)) if soft > hard => {
                Err(format!("the soft limit {soft} is above the hard limit {hard}"))
            }
            (None, Some(hard)) => Err(format!("the soft limit is unlimited, above the hard limit {hard}")),
            _ => Ok(self),
        }
    }
}

impl Value for Ulimit {
    const WHAT: &'static str = "a limit: SOFT[:HARD], each a number, a size or unlimited";

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| format!("is not {}", Self::WHAT))?;
        let (soft, hard) = text.split_once(':').unwrap_or((text, text));
        Self { soft: bound(soft)?, hard: bound(hard)?, clamp: false }.ordered()
    }
}

/// Parses one bound. docker writes -1 for unlimited. RLIM_INFINITY is larger than any valid size, so no number means it.
fn bound(text: &str) -> Result<Option<u64>, String> {
    match text {
        "unlimited" | "-1" => Ok(None),
        _ => units::size(text)
            .map(Some)
            .map_err(|reason| reason.replace("a size:", "a limit:").replace("number of bytes", "number")),
    }
}

/// The table form in a policy file.
#[derive(serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct UlimitTable {
    /// The limit in force.
    soft: Bound,
    /// The value that the workload may raise it to; the soft limit by default.
    hard: Option<Bound>,
    /// Whether it is lowered to the caller's hard limit if that is smaller; otherwise the run is refused.
    #[serde(default)]
    clamp: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Bound(Option<u64>);

struct UlimitVisitor;

impl<'de> Visitor<'de> for UlimitVisitor {
    type Value = Ulimit;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Ulimit::WHAT)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Ulimit, E> {
        Ulimit::parse(text.as_bytes()).map_err(E::custom)
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Ulimit, E> {
        Ulimit::parse(number.to_string().as_bytes()).map_err(E::custom)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Ulimit, A::Error> {
        let table = UlimitTable::deserialize(MapAccessDeserializer::new(map))?;
        let hard = table.hard.unwrap_or(table.soft);
        Ulimit { soft: table.soft.0, hard: hard.0, clamp: table.clamp }.ordered().map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Ulimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UlimitVisitor)
    }
}

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BoundVisitor;
        impl Visitor<'_> for BoundVisitor {
            type Value = Bound;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a size or unlimited")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bound, E> {
                bound(text).map(Bound).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Bound, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(BoundVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_soft_and_hard() {
        let parse = |text: &str| Ulimit::parse(text.as_bytes());
        assert_eq!(parse("1024").map(|l| (l.soft, l.hard)), Ok((Some(1024), Some(1024))));
        assert_eq!(parse("1024:4096").map(|l| (l.soft, l.hard)), Ok((Some(1024), Some(4096))));
        assert_eq!(parse("8M:unlimited").map(|l| (l.soft, l.hard)), Ok((Some(8 << 20), None)));
        assert_eq!(parse("-1").map(|l| (l.soft, l.hard)), Ok((None, None)));
        for text in ["", ":", "1:", ":1", "2:1", "unlimited:1", "-2", "1:2:3", "a", "1.5", "18446744073709551615"] {
            parse(text).expect_err(text);
        }
    }
}
