//! The user of a command, as clients write it.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// `UID[:GID]`, or a name that the sandbox has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// Ids inside. The group is the user's number if it is not given, as for `run --user`.
    Ids(u32, u32),
    /// The name of the sandbox's user, `root` or `nobody`.
    Named(String),
}

/// Most bytes of a name, `useradd(8)`.
const MOST_NAME: usize = 32;

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not UID[:GID], and no name");
        if !text.starts_with(|first: char| first.is_ascii_digit()) {
            let may_contain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            let is_name =
                !text.is_empty() && text.len() <= MOST_NAME && !text.starts_with('-') && text.bytes().all(may_contain);
            return if is_name { Ok(Self::Named(text.to_owned())) } else { Err(wrong()) };
        }
        // The last number means "no id" to the kernel.
        let id = |digits: &str| {
            let whole = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|id| whole && *id != u32::MAX).ok_or_else(wrong)
        };
        match text.split_once(':') {
            Some((uid, gid)) => Ok(Self::Ids(id(uid)?, id(gid)?)),
            None => id(text).map(|uid| Self::Ids(uid, uid)),
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ids(uid, gid) => write!(f, "{uid}:{gid}"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

impl Serialize for User {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_ids_or_a_name() {
        assert_eq!("5".parse(), Ok(User::Ids(5, 5)));
        assert_eq!("5:6".parse(), Ok(User::Ids(5, 6)));
        assert_eq!("4294967294:0".parse(), Ok(User::Ids(u32::MAX - 1, 0)));
        assert_eq!("www-data".parse(), Ok(User::Named("www-data".into())));
        for text in ["root", "5:6"] {
            assert_eq!(text.parse::<User>().unwrap().to_string(), text);
        }
        let long = "a".repeat(33);
        for wrong in
            ["", ":", "1:", ":1", "1:2:3", "1:+2", "-1:0", "4294967295", "1 ", "a:b", "a/b", "a\nb", "é", "1a", &long]
        {
            let read = wrong.parse::<User>();
            assert!(read.is_err(), "{wrong:?}: {read:?}");
        }
    }
}
