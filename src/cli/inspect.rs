//! `stockade inspect`: the plan, usage and commands of a session, as JSON.

use serde_json::{Value, json};

use super::session::name;
use super::{ps, say};
use crate::args::Args;
use crate::error::{Error, Result, Step, printable_json};
use crate::session::place::{Home, missing};
use crate::session::record::Record;

/// Prints what a session says about itself, or if it has ended its record.
pub fn main(args: &Args) -> Result<u8> {
    let name = name(args);
    let place = Home::open()?.ok_or_else(|| missing(&name))?.place(&name)?;
    let shown = match ps::status(&place) {
        Ok(status) => status,
        Err(error) if place.is_alive()? => return Err(error),
        Err(_) => serde_json::to_value(Record::of(&place)?.ok_or_else(|| missing(&name))?).unwrap_or(Value::Null),
    };
    let mut inspected = json!({ "schema": "stockade/inspect/v1", "end": null, "pid": null });
    if let (Some(all), Value::Object(shown)) = (inspected.as_object_mut(), shown) {
        all.extend(shown.into_iter().filter(|(key, _)| key != "schema"));
    }
    let text = serde_json::to_string_pretty(&inspected);
    let text = text.map_err(|error| Error::new(Step::Output, &name, error.to_string()))?;
    say(&(printable_json(&text) + "\n"))
}
