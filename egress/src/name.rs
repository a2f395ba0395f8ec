//! Host names, in the one form in which they are compared.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A host name in ASCII and lower case, without a dot at its end. Two names are the same host exactly if they are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// The longest name, and the longest part of one, of RFC 1035.
const LONGEST: usize = 253;
const LONGEST_LABEL: usize = 63;

impl Name {
    /// A name that the workload has sent. Its bytes are taken as they are, except for their case.
    pub fn from_wire(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.to_ascii_lowercase();
        check(&text).is_ok().then_some(Self(text))
    }

    /// The same from the labels of a question.
    pub fn from_labels<'a>(labels: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut text = Vec::new();
        for label in labels {
            // A dot within a label would look like two labels.
            if label.contains(&b'.') {
                return None;
            }
            text.extend_from_slice(label);
            text.push(b'.');
        }
        text.pop();
        Self::from_wire(&text)
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it has only one part, as names in a local network.
    pub fn is_single(&self) -> bool {
        !self.0.contains('.')
    }

    /// Whether it lies below `domain`: `a.example.com` and `b.a.example.com` are below `example.com`, which is not below itself.
    pub fn is_below(&self, domain: &Self) -> bool {
        self.0.strip_suffix(domain.as_str()).is_some_and(|rest| rest.ends_with('.'))
    }
}

/// A name as a person writes it: international names become ASCII, and one dot at the end is dropped.
impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |reason: &str| format!("{text:?} is not a host name: {reason}");
        let trimmed = text.strip_suffix('.').unwrap_or(text);
        let ascii = match trimmed.is_ascii() {
            true => trimmed.to_ascii_lowercase(),
            false => {
                idna::domain_to_ascii_strict(trimmed).map_err(|_| wrong("it cannot be written in ASCII (IDNA)"))?
            }
        };
        check(&ascii).map_err(wrong)?;
        Ok(Self(ascii))
    }
}

/// Letters, digits, hyphens and underscores in labels of 1 to 63 bytes. The last must not be a number, because programs take such a
/// name for an address.
fn check(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.len() > LONGEST {
        return Err("it is longer than 253 characters");
    }
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    for label in text.split('.') {
        match label.len() {
            0 => return Err("a part between dots is empty"),
            1..=LONGEST_LABEL => {}
            _ => return Err("a part between dots is longer than 63 characters"),
        }
        if !label.bytes().all(is_known) {
            return Err("only letters, digits, - and _ may be in it");
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err("a part between dots begins or ends with -");
        }
    }
    let last = text.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if last.bytes().all(|byte| byte.is_ascii_digit()) || hexadecimal {
        return Err("its last part is a number, as in an address");
    }
    Ok(())
}

impl TryFrom<String> for Name {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn one_host_has_one_form() {
        assert_eq!(name("API.Example.COM."), name("api.example.com"));
        assert_eq!(name("bücher.example"), name("xn--bcher-kva.example"));
        assert_eq!(name("BÜCHER.example."), name("xn--bcher-kva.example"));
        assert_eq!(name("_srv.example.com").as_str(), "_srv.example.com");
        assert_eq!(Name::from_wire(b"API.example.com"), Some(name("api.example.com")));
        assert_eq!(Name::from_labels([b"a".as_slice(), b"B"].into_iter()), Some(name("a.b")));
    }

    #[test]
    fn what_looks_like_something_else_is_no_name() {
        for text in [
            "",
            ".",
            "a..b",
            ".a",
            "a.b..",
            "-a.b",
            "a-.b",
            "a b",
            "a\0.b",
            "a.b\0",
            "[::1]",
            "a%eth0",
            "fe80::1%lo",
            "a/b",
            "a:80",
            "user@a",
            "1.2.3.4",
            "a.1",
            "0x7f.1",
            "a.0x7f",
            "a.0x",
            "127.1",
            "*.a",
            "a\u{200b}b.c\u{0}",
            "http://a",
        ] {
            assert!(text.parse::<Name>().is_err(), "{text:?}");
        }
        assert!("a".repeat(64).parse::<Name>().is_err());
        assert!(format!("{}.com", "a.".repeat(126)).parse::<Name>().is_err());
        for bytes in [b"a.b.".as_slice(), b"a\0.b", b"b\xc3\xbccher.example", b"", b"."] {
            assert_eq!(Name::from_wire(bytes), None, "{bytes:?}");
        }
        assert_eq!(Name::from_labels([b"a.b".as_slice(), b"c"].into_iter()), None);
        assert_eq!(Name::from_labels(std::iter::empty()), None);
    }

    #[test]
    fn a_domain_ends_at_a_dot() {
        let domain = name("example.com");
        assert!(name("a.example.com").is_below(&domain) && name("b.a.example.com").is_below(&domain));
        for other in ["example.com", "badexample.com", "com", "a.example.com.evil"] {
            assert!(!name(other).is_below(&domain), "{other}");
        }
    }
}
