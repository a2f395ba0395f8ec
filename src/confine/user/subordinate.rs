//! The ranges of `subuid(5)` and `subgid(5)`.

use super::errno_of;
use crate::error::{Error, Result, Step};

/// The caller's first range in a subordinate id file: start and length.
pub fn subordinate(file: &str, uid: u32) -> Result<(u32, u32)> {
    let missing = |reason: &str| {
        Error::new(Step::Identity, file, reason).hint(
            "add a range, as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER; or leave --subuid out",
        )
    };
    let text = std::fs::read_to_string(file).map_err(|error| Error::errno(Step::Identity, file, errno_of(&error)))?;
    let name = user_name(uid);
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let owner = fields.next()?;
            let own = owner.parse() == Ok(uid) || name.as_deref() == Some(owner);
            let (start, count) = (fields.next()?.parse().ok()?, fields.next()?.trim().parse().ok()?);
            (own && count > 0 && u32::checked_add(start, count).is_some()).then_some((start, count))
        })
        .next()
        .ok_or_else(|| missing("has no range for this user"))
}

/// The login name of a host user. Read from the passwd file alone, because a static binary has no NSS.
fn user_name(uid: u32) -> Option<String> {
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}
