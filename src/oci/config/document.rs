//! A document as one of the types of the crate `oci-spec`: the tree in which no key stands twice, made fit for the type,
//! deserialized, and translated. The one place that knows of all three, and names the place of an error in any of them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Display};

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor};

use stockade_json::{At, parse};

pub use stockade_json::{Error as ProfileError, Json};

/// The longest document that is read.
pub const MAX_BYTES: usize = 64 << 20;

/// Result of reading a field.
pub type Read<T> = std::result::Result<T, ProfileError>;

/// Reads a document. `fit` changes the tree to what the type takes; what it takes out of the tree goes to `translate`.
pub fn read<T: DeserializeOwned, P, U>(
    bytes: &[u8],
    fit: impl FnOnce(&mut Json) -> Read<P>,
    translate: impl FnOnce(T, P) -> Read<U>,
) -> Read<U> {
    let mut tree = parse(bytes, MAX_BYTES)?;
    let read = fit(&mut tree).and_then(|aside| {
        let typed = T::deserialize(Node { json: &tree, step: Step::Root }).map_err(|Mistake(error)| error)?;
        translate(typed, aside)
    });
    read.map_err(|error| located(At::root(&tree), &error.path, error.reason))
}

/// An error about a field, whose value is shown once the place is found in the tree.
pub fn wrong(field: &str, reason: impl Into<String>) -> ProfileError {
    ProfileError { path: field.to_owned(), value: None, reason: reason.into() }
}

/// Says in which part of the document a field is.
pub trait Within {
    /// Puts the part's name before the field's.
    fn within(self, part: impl Display) -> Self;
}

impl<T> Within for Read<T> {
    fn within(self, part: impl Display) -> Self {
        self.map_err(|error| below(part, error))
    }
}

fn below(part: impl Display, error: ProfileError) -> ProfileError {
    let dot = if error.path.is_empty() || error.path.starts_with('[') { "" } else { "." };
    ProfileError { path: format!("{part}{dot}{}", error.path), ..error }
}

/// Translates every item of a list.
pub fn each<T, U>(field: &str, list: &Option<Vec<T>>, mut item: impl FnMut(&T) -> Read<U>) -> Read<Vec<U>> {
    let items = list.iter().flatten().enumerate();
    items.map(|(index, value)| item(value).within(format_args!("{field}[{index}]"))).collect()
}

/// Translates every entry of a map, in the order of the keys: the type has none.
pub fn entries<T, U>(
    field: &str,
    map: &Option<HashMap<String, T>>,
    mut entry: impl FnMut(&str, &T) -> Read<U>,
) -> Read<Vec<U>> {
    let mut all: Vec<_> = map.iter().flatten().collect();
    all.sort_by_key(|(key, _)| *key);
    all.into_iter().map(|(key, value)| entry(key, value).within(format_args!("{field}.{key}"))).collect()
}

/// An error at the end of a path below a value, with the value there; where the path ends early, the rest is missing.
fn located(here: At, path: &str, reason: String) -> ProfileError {
    let path = path.strip_prefix('.').unwrap_or(path);
    if path.is_empty() {
        let says_something = !matches!(here.json, Json::Array(_) | Json::Object(_));
        return if says_something { here.wrong(reason) } else { here.lacks(reason) };
    }
    if let Some((index, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']'))
        && let (Ok(mut items), Ok(index)) = (here.items(), index.parse())
        && let Some(item) = items.nth(index)
    {
        return located(item, rest, reason);
    }
    // Keys are anybody's, and may have dots.
    let mut entries = here.entries().into_iter().flatten();
    let found = entries.find_map(|(key, value)| {
        let rest = path.strip_prefix(key)?;
        (rest.is_empty() || rest.starts_with(['.', '['])).then_some((value, rest))
    });
    match found {
        Some((value, rest)) => located(value, rest, reason),
        None => here.lacks(format!("{path} {reason}")),
    }
}

/// A value as `serde` reads it. Unlike with `serde_json`, a struct's null is as good as absent, a list is never taken for a
/// struct, and an error knows its place. (`serde_path_to_error` finds that too, at twice the code: 300 KB.)
#[derive(Clone, Copy)]
struct Node<'de> {
    json: &'de Json<'de>,
    step: Step<'de>,
}

/// How a value is reached from the one that holds it.
#[derive(Clone, Copy)]
enum Step<'de> {
    Root,
    Key(&'de str),
    Index(usize),
}

impl<'de> Node<'de> {
    fn items(items: &'de [Json<'de>]) -> impl Iterator<Item = Self> {
        items.iter().enumerate().map(|(index, json)| Self { json, step: Step::Index(index) })
    }

    fn entries(entries: &'de [(Cow<'de, str>, Json<'de>)]) -> impl Iterator<Item = (&'de str, Self)> {
        entries.iter().map(|(key, json)| (&**key, Self { json, step: Step::Key(key) }))
    }

    fn placed<T>(self, result: Result<T, Mistake>) -> Result<T, Mistake> {
        result.map_err(|Mistake(error)| match self.step {
            Step::Root => Mistake(error),
            Step::Key(key) => Mistake(below(key, error)),
            Step::Index(index) => Mistake(below(format_args!("[{index}]"), error)),
        })
    }
}

impl<'de> IntoDeserializer<'de, Mistake> for Node<'de> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Node<'de> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.placed(match self.json {
            Json::Null => visitor.visit_unit(),
            Json::Bool(value) => visitor.visit_bool(*value),
            Json::Unsigned(value) => visitor.visit_u64(*value),
            Json::Negative(value) => visitor.visit_i64(*value),
            Json::Float(value) => visitor.visit_f64(*value),
            Json::String(text) => visitor.visit_borrowed_str(text),
            Json::Array(items) => visitor.visit_seq(SeqDeserializer::new(Self::items(items))),
            Json::Object(entries) => visitor.visit_map(MapDeserializer::new(Self::entries(entries))),
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        if *self.json == Json::Null { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let Json::Object(entries) = self.json else {
            let array = matches!(self.json, Json::Array(_));
            let found = if array { Unexpected::Seq } else { Unexpected::Other("") };
            return self.placed(Err(de::Error::invalid_type(found, &visitor)));
        };
        let there = Self::entries(entries).filter(|(_, node)| *node.json != Json::Null);
        self.placed(visitor.visit_map(MapDeserializer::new(there)))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let text: &str = Deserialize::deserialize(self)?;
        self.placed(visitor.visit_enum(text.into_deserializer()))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

/// Why a value is not of the type.
#[derive(Debug)]
struct Mistake(ProfileError);

impl Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Mistake {}

impl de::Error for Mistake {
    fn custom<T: Display>(reason: T) -> Self {
        Self(wrong("", reason.to_string()))
    }
    fn invalid_type(found: Unexpected, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Seq => "an array: ",
            Unexpected::Map => "an object: ",
            _ => "", // shown as the value it is
        };
        let expected = match expected.to_string().as_str() {
            "a boolean" => "true or false".to_owned(),
            "a sequence" => "an array".to_owned(),
            "a borrowed string" | "path string" => "a string".to_owned(),
            "a map" => "an object".to_owned(),
            "u16" => format!("a whole number from 0 to {}", u16::MAX),
            "u32" => format!("a whole number from 0 to {}", u32::MAX),
            "u64" => format!("a whole number from 0 to {}", u64::MAX),
            "i32" => "a whole number of 32 bits".to_owned(),
            "i64" => "a whole number of 64 bits".to_owned(),
            text if text.starts_with("struct ") => "an object".to_owned(),
            other => other.to_owned(),
        };
        Self::custom(format_args!("{found}must be {expected}"))
    }
    fn invalid_value(found: Unexpected, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }
    fn unknown_variant(_: &str, known: &'static [&'static str]) -> Self {
        let known: Vec<_> = known.iter().map(|name| spelt(name)).collect();
        Self::custom(format_args!("is not one of {}", known.join(", ")))
    }
    fn missing_field(field: &'static str) -> Self {
        Self(wrong(field, "is missing"))
    }
}

/// Swaps the names of the two flags of schedulers that the types spell otherwise than the specification and the kernel do.
pub fn spelt(name: &str) -> &str {
    match name {
        "SCHED_FLAG_RESET_ON_FORK" => "SCHED_RESET_ON_FORK",
        "SCHED_RESET_ON_FORK" => "SCHED_FLAG_RESET_ON_FORK",
        "SCHED_FLAG_DL_OVERRUN" => "SCHED_FLAG_D_L_OVERRUN",
        "SCHED_FLAG_D_L_OVERRUN" => "SCHED_FLAG_DL_OVERRUN",
        other => other,
    }
}
