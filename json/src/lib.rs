//! JSON as a tree without duplicate keys. Errors name the place in the file, the value there and the reason.
//!
//! Used for seccomp profiles and an OCI runtime's `config.json`. `serde_json` alone accepts the last of two equal keys: a
//! profile with two `action`s would mean something else here than to its reviewer.
//!
//! ```
//! use stockade_json::{At, parse};
//!
//! let tree = parse(br#"{ "mounts": [{ "source": 7 }] }"#, 1 << 20)?;
//! let root = At::root(&tree);
//! for mount in root.get("mounts")?.unwrap().items()? {
//!     let error = mount.get("source")?.unwrap().text().unwrap_err();
//!     assert_eq!(error.to_string(), "mounts[0].source: 7: must be a string");
//! }
//! assert!(parse(br#"{ "a": 1, "a": 2 }"#, 1 << 20).is_err());
//! # Ok::<(), stockade_json::Error>(())
//! ```

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Why a document cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The place: `syscalls[3].args[0].op`; empty for the whole file.
    pub path: String,
    /// The value there, shortened.
    pub value: Option<String>,
    /// The reason.
    pub reason: String,
}

impl Error {
    /// `value: reason`, the error without its place.
    pub fn message(&self) -> String {
        match &self.value {
            Some(value) => format!("{value}: {}", self.reason),
            None => self.reason.clone(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message())
    }
}

impl std::error::Error for Error {}

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json<'a> {
    /// `null`, which means the same as an absent key, as in the programs that these profiles come from.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number from 0 to 2^64-1.
    Unsigned(u64),
    /// A negative whole number.
    Negative(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    String(Cow<'a, str>),
    /// A list.
    Array(Vec<Self>),
    /// Keys with their values. All keys differ.
    Object(Vec<(Cow<'a, str>, Self)>),
}

/// A string as JSON, on one line.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// As JSON, on one line.
impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Negative(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::String(value) => f.write_str(&quoted(value)),
            Self::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index == 0 { "[" } else { "," })?;
                }
                f.write_str(if items.is_empty() { "[]" } else { "]" })
            }
            Self::Object(entries) => {
                for (index, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{}:{value}", if index == 0 { "{" } else { "," }, quoted(key))?;
                }
                f.write_str(if entries.is_empty() { "{}" } else { "}" })
            }
        }
    }
}

/// Parses a whole document of at most `most` bytes.
pub fn parse(bytes: &[u8], most: usize) -> Result<Json<'_>, Error> {
    if bytes.len() > most {
        let reason = format!("has {} bytes; at most {most} are read", bytes.len());
        return Err(Error { path: String::new(), value: None, reason });
    }
    let path = RefCell::new(Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let tree = Tree(&path).deserialize(&mut deserializer).and_then(|tree| deserializer.end().map(|()| tree));
    tree.map_err(|error| {
        let path: String = path.borrow().iter().rev().map(String::as_str).collect();
        // A key may contain a newline, which would split the error's line.
        let [path, reason] = [path.trim_start_matches('.'), &error.to_string()].map(on_one_line);
        Error { path, value: None, reason }
    })
}

fn on_one_line(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if c.is_control() {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    })
}

/// A value being parsed. An error appends the path to its place here, the innermost step first.
struct Tree<'p>(&'p RefCell<Vec<String>>);

impl Tree<'_> {
    fn at<T, E>(&self, result: Result<T, E>, step: impl Fn() -> String) -> Result<T, E> {
        if result.is_err() {
            self.0.borrow_mut().push(step());
        }
        result
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Json<'de>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Unsigned(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Negative(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        Ok(Json::Float(value))
    }
    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::String(Cow::Borrowed(value)))
    }
    fn visit_str<E>(self, value: &str) -> Result<Json<'de>, E> {
        Ok(Json::String(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json<'de>, A::Error> {
        let mut items = Vec::new();
        loop {
            let item = list.next_element_seed(Tree(self.0));
            match self.at(item, || format!("[{}]", items.len()))? {
                Some(item) => items.push(item),
                None => return Ok(Json::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
        let mut entries: Vec<(Cow<'de, str>, Json<'de>)> = Vec::new();
        let mut many = HashSet::new();
        while let Some(Key(key)) = map.next_key()? {
            let twice = if entries.len() < 16 {
                entries.iter().any(|entry| entry.0 == key)
            } else {
                if many.is_empty() {
                    many.extend(entries.iter().map(|entry| entry.0.clone()));
                }
                !many.insert(key.clone())
            };
            let value =
                if twice { Err(serde::de::Error::custom("duplicate key")) } else { map.next_value_seed(Tree(self.0)) };
            let value = self.at(value, || format!(".{key}"))?;
            entries.push((key, value));
        }
        Ok(Json::Object(entries))
    }
}

/// An object's key, borrowed from the document if it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Cow<'de, str>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(value.to_owned()))
            }
        }
        deserializer.deserialize_str(Text).map(Key)
    }
}

/// A value and its place.
#[derive(Clone, Copy)]
pub struct At<'p> {
    /// The value.
    pub json: &'p Json<'p>,
    path: Path<'p>,
}

/// A place as a chain to the root. Created for every value, formatted only in an error.
#[derive(Clone, Copy)]
enum Path<'p> {
    Root,
    Key(&'p At<'p>, &'p str),
    Index(&'p At<'p>, usize),
}

impl<'p> At<'p> {
    /// The document itself.
    pub fn root(json: &'p Json<'p>) -> Self {
        Self { json, path: Path::Root }
    }

    /// The place as text.
    pub fn path(&self) -> String {
        match self.path {
            Path::Root => String::new(),
            Path::Key(parent, key) if matches!(parent.path, Path::Root) => on_one_line(key),
            Path::Key(parent, key) => format!("{}.{}", parent.path(), on_one_line(key)),
            Path::Index(parent, index) => format!("{}[{index}]", parent.path()),
        }
    }

    /// An error about this value, which it quotes.
    pub fn wrong(&self, reason: impl Into<String>) -> Error {
        Error { path: self.path(), value: Some(self.shown()), reason: reason.into() }
    }

    /// An error about this place, if the value itself says nothing.
    pub fn lacks(&self, reason: impl Into<String>) -> Error {
        Error { path: self.path(), value: None, reason: reason.into() }
    }

    /// The value under a key, unless it is absent or null.
    pub fn get<'s>(&'s self, key: &'s str) -> Result<Option<At<'s>>, Error> {
        let Json::Object(entries) = self.json else { return Err(self.wrong("must be an object")) };
        let found = entries.iter().find(|entry| entry.0 == key && entry.1 != Json::Null);
        Ok(found.map(|entry| At { json: &entry.1, path: Path::Key(self, key) }))
    }

    /// The entries of an object.
    pub fn entries<'s>(&'s self) -> Result<impl Iterator<Item = (&'s str, At<'s>)>, Error> {
        let Json::Object(entries) = self.json else { return Err(self.wrong("must be an object")) };
        Ok(entries.iter().map(|entry| (&*entry.0, At { json: &entry.1, path: Path::Key(self, &entry.0) })))
    }

    /// The items of a list.
    pub fn items<'s>(&'s self) -> Result<impl Iterator<Item = At<'s>>, Error> {
        let Json::Array(items) = self.json else { return Err(self.wrong("must be an array")) };
        Ok(items.iter().enumerate().map(|(index, json)| At { json, path: Path::Index(self, index) }))
    }

    /// As text.
    pub fn text(&self) -> Result<&'p str, Error> {
        match self.json {
            Json::String(text) => Ok(text),
            _ => Err(self.wrong("must be a string")),
        }
    }

    /// As a whole number up to `most`.
    pub fn number(&self, most: u64) -> Result<u64, Error> {
        match self.json {
            Json::Unsigned(number) if *number <= most => Ok(*number),
            _ => Err(self.wrong(format!("must be a whole number from 0 to {most}"))),
        }
    }

    /// As `true` or `false`.
    pub fn boolean(&self) -> Result<bool, Error> {
        match self.json {
            Json::Bool(value) => Ok(*value),
            _ => Err(self.wrong("must be true or false")),
        }
    }

    /// As a whole number that may be negative.
    pub fn signed(&self) -> Result<i64, Error> {
        let wrong = || self.wrong("must be a whole number of 64 bits");
        match self.json {
            Json::Unsigned(number) => i64::try_from(*number).map_err(|_| wrong()),
            Json::Negative(number) => Ok(*number),
            _ => Err(wrong()),
        }
    }

    /// The value, shortened for a message.
    fn shown(&self) -> String {
        match self.json {
            Json::Null => "null".to_owned(),
            Json::Bool(value) => value.to_string(),
            Json::Unsigned(value) => value.to_string(),
            Json::Negative(value) => value.to_string(),
            Json::Float(value) => format!("{value:?}"),
            Json::String(value) if value.chars().count() > 40 => {
                quoted(&value.chars().take(40).chain(['…']).collect::<String>())
            }
            Json::String(value) => quoted(value),
            Json::Array(_) => "an array".to_owned(),
            Json::Object(_) => "an object".to_owned(),
        }
    }
}
