//! The policies that are part of the program.

/// Name and text of each, the base of all first.
pub const ALL: [(&str, &str); 3] = [
    ("default", include_str!("../../profiles/default.toml")),
    ("strict", include_str!("../../profiles/strict.toml")),
    ("build", include_str!("../../profiles/build.toml")),
];

/// The text of a built-in policy.
pub fn text(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
