//! Environment files: one `NAME=VALUE` a line, or `NAME` to pass the caller's value; a line that begins with `#` is a comment.

use std::path::Path;

use super::file;
use super::load::MAX_LIST;
use super::settings::EnvSettings;
use super::trust::Guarded;
use super::value::{EnvName, EnvPattern, EnvValue, Value};
use crate::error::{Error, Result, Step};
use crate::plan::Bytes;

/// Adds the value of one `-e` or one line. The last setting of a variable wins.
pub fn add(env: &mut EnvSettings, text: &[u8]) -> std::result::Result<(), String> {
    if env.set.len() + env.pass.len() >= MAX_LIST {
        return Err(format!("more than {MAX_LIST} variables"));
    }
    match text.iter().position(|byte| *byte == b'=') {
        Some(at) => {
            let name = EnvName::parse(&text[..at])?;
            env.pass.retain(|pattern| pattern.0 != name.0);
            env.set.insert(name, EnvValue::parse(&text[at + 1..])?);
        }
        None => {
            let name = EnvName::parse(text)?;
            if text.contains(&b'*') {
                return Err(format!("\"{}\" contains \"*\": name each variable", name.0));
            }
            env.set.remove(&name);
            if env.pass.iter().all(|pattern| pattern.0 != name.0) {
                env.pass.push(EnvPattern(name.0));
            }
        }
    }
    Ok(())
}

/// Adds every line of a file, and returns the file.
pub fn read(env: &mut EnvSettings, path: &Path, base: Option<&Path>) -> Result<Guarded> {
    let file = file::read(file::ENVIRONMENT, path, base)?;
    for (index, line) in file.bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let added = match line.ends_with(b"\r") {
            true => Err("the line ends with a carriage return: lines must end with a newline only".into()),
            false => add(env, line),
        };
        added.map_err(|reason| Error::new(Step::Usage, format!("{}:{}", Bytes::from(path), index + 1), reason))?;
    }
    Ok(Guarded::environment(file.trail))
}
