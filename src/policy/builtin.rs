//! The built-in policies.

/// Name and text of each. The first is the base of all policies.
pub const ALL: [(&str, &str); 4] = [
    ("default", include_str!("../../profiles/default.toml")),
    ("strict", include_str!("../../profiles/strict.toml")),
    ("build", include_str!("../../profiles/build.toml")),
    ("nested", include_str!("../../profiles/nested.toml")),
];

/// The text of a built-in policy.
pub fn text(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
