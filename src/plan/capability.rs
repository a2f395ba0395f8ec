//! A capability in a plan: the type of the crate caps, with the kernel's order and a text form.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

/// A capability, `capabilities(7)`. Its text is the kernel's name, such as `CAP_CHOWN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Capability(caps::Capability);

impl Capability {
    /// Every known capability, in the kernel's order.
    pub fn all() -> Vec<Self> {
        let mut all: Vec<_> = caps::all().into_iter().map(Self).collect();
        all.sort();
        all
    }

    /// Parses a name, with or without `CAP_`, in any case.
    pub fn from_word(word: &str) -> Option<Self> {
        // The crate also converts the case of non-ASCII letters, and some of these become ASCII letters.
        if word.is_ascii() { caps::to_canonical(word).parse().ok() } else { None }
    }

    /// The kernel's number.
    pub fn number(self) -> u32 {
        self.0.index().into()
    }
}

impl FromStr for Capability {
    type Err = ();
    fn from_str(name: &str) -> Result<Self, ()> {
        name.parse().map(Self).map_err(|_: caps::errors::CapsError| ())
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Ord for Capability {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number().cmp(&other.number())
    }
}

impl PartialOrd for Capability {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

// The crate's own implementation would also accept the name of a variant that is not a capability.
impl<'de> Deserialize<'de> for Capability {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(|()| D::Error::custom(format!("unknown capability {name:?}")))
    }
}

impl Serialize for Capability {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for Capability {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Capability".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let description = "The capabilities of `capabilities(7)`.";
        schemars::json_schema!({ "description": description, "type": "string", "enum": Self::all() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_match_the_kernel() {
        let all = Capability::all();
        assert!(all.iter().zip(0..).all(|(one, number)| one.number() == number), "{all:?}");
        assert_eq!((all[0].to_string(), all[21].to_string()), ("CAP_CHOWN".into(), "CAP_SYS_ADMIN".into()));
        assert_eq!(all.last().map(ToString::to_string), Some("CAP_CHECKPOINT_RESTORE".into()));
        for one in all {
            let text = serde_json::to_string(&one).unwrap();
            assert_eq!((serde_json::from_str(&text).ok(), text), (Some(one), format!("\"{one}\"")));
        }
    }

    #[test]
    fn names_are_accepted_in_several_spellings() {
        let chown = "CAP_CHOWN".parse().ok();
        assert!(chown.is_some());
        assert_eq!([Capability::from_word("chown"), Capability::from_word("Cap_Chown")], [chown, chown]);
        for word in ["", "CAP_", "chow", "\u{17f}ys_admin", "__Nonexhaustive", "CAP_41"] {
            assert_eq!(Capability::from_word(word), None, "{word}");
        }
        assert!(serde_json::from_str::<Capability>("\"__Nonexhaustive\"").is_err());
    }
}
