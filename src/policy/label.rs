//! Labels: what the caller calls a run. They change nothing of it.

use super::value::{Value, text, written};

/// How many labels a run may have.
pub const MOST: usize = 32;

written! { LabelName LabelValue }

/// The name of a label, such as `job` or `example.com/team`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelName(pub(crate) String);

impl Value for LabelName {
    const WHAT: &'static str = "the name of a label: 1 to 64 of A-Z a-z 0-9 . _ / -";
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let name = text(bytes)?;
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._/-".contains(byte);
        match (1..=64).contains(&name.len()) && bytes.iter().all(allowed) {
            true => Ok(Self(name.to_owned())),
            false => Err(format!("{name:?} is not {}", Self::WHAT)),
        }
    }
}

/// The value of a label, which may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelValue(pub(crate) String);

impl Value for LabelValue {
    const WHAT: &'static str = "the value of a label: up to 256 bytes of text in one line";
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let value = text(bytes)?;
        match value.len() <= 256 && !value.chars().any(crate::error::is_deceptive) {
            true => Ok(Self(value.to_owned())),
            false => Err(format!("{value:?} is not {}", Self::WHAT)),
        }
    }
}

/// `NAME=VALUE`, or `NAME` for an empty value, as docker has it.
pub fn parse(bytes: &[u8]) -> Result<(LabelName, LabelValue), String> {
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &b""[..]),
    };
    Ok((LabelName::parse(name)?, LabelValue::parse(value)?))
}
