//! JSON Schema: the part of the 2020-12 draft that our schemas use, `https://json-schema.org/draft/2020-12`.
//!
//! An unknown keyword fails the test, so that no rule is ignored.

use serde_json::{Map, Value};

/// All violations of the schema, each with its path.
pub fn violations(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, schema, value, "$", &mut found);
    found
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let rules = match schema {
        Value::Bool(true) => return,
        Value::Bool(false) => return found.push(format!("{at}: nothing is allowed here")),
        Value::Object(rules) => rules,
        other => panic!("{other} is not a schema"),
    };
    for (keyword, rule) in rules {
        let mut fail = |why: String| found.push(format!("{at}: {why}"));
        match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" | "examples" => {}
            // For editors. The types behind our schemas are stricter than a pattern, and have tests of their own.
            "pattern" => {}
            "$ref" => check(root, resolve(root, rule), value, at, found),
            "type" => {
                let names: Vec<_> = rule.as_array().map_or_else(|| vec![rule], |names| names.iter().collect());
                if !names.iter().any(|name| is_of_type(value, name.as_str().expect("a type is named"))) {
                    fail(format!("{value} is not {rule}"));
                }
            }
            "const" if value != rule => fail(format!("{value} is not {rule}")),
            "enum" if !rule.as_array().expect("enum is a list").contains(value) => {
                fail(format!("{value} is not one of {rule}"))
            }
            "const" | "enum" => {}
            "required" => {
                for name in rule.as_array().expect("required is a list") {
                    if value.is_object() && value.get(name.as_str().expect("names are strings")).is_none() {
                        fail(format!("{name} is missing"));
                    }
                }
            }
            "properties" => {
                for (name, schema) in rule.as_object().expect("properties is an object") {
                    if let Some(value) = value.get(name) {
                        check(root, schema, value, &format!("{at}.{name}"), found);
                    }
                }
            }
            "additionalProperties" => {
                for (name, value) in others(rules, value) {
                    check(root, rule, value, &format!("{at}.{name}"), found);
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, item, &format!("{at}[{index}]"), found);
                }
            }
            "minItems" if (value.as_array().map_or(usize::MAX, Vec::len) as u64) < rule.as_u64().expect("a number") => {
                fail(format!("{value} has fewer than {rule} items"));
            }
            "minimum" if value.as_f64().is_some_and(|number| number < rule.as_f64().expect("a number")) => {
                fail(format!("{value} is below {rule}"));
            }
            "maximum" if value.as_f64().is_some_and(|number| number > rule.as_f64().expect("a number")) => {
                fail(format!("{value} is above {rule}"));
            }
            "minItems" | "minimum" | "maximum" => {}
            "format" => {
                let fits = match rule.as_str().expect("a format is named") {
                    "uint8" => value.as_u64().is_none_or(|number| u8::try_from(number).is_ok()),
                    "uint16" => value.as_u64().is_none_or(|number| u16::try_from(number).is_ok()),
                    "uint32" => value.as_u64().is_none_or(|number| u32::try_from(number).is_ok()),
                    "int16" => value.as_i64().is_none_or(|number| i16::try_from(number).is_ok()),
                    "int32" => value.as_i64().is_none_or(|number| i32::try_from(number).is_ok()),
                    "uint64" | "uint" | "int64" => !value.is_f64(),
                    "double" => true,
                    "ip" => value.as_str().is_none_or(|text| text.parse::<std::net::IpAddr>().is_ok()),
                    "date-time" => value.as_str().is_none_or(is_date_time),
                    other => panic!("{at}: unknown format {other}"),
                };
                if !fits {
                    fail(format!("{value} is not {rule}"));
                }
            }
            "anyOf" | "oneOf" => {
                let mut reasons = Vec::new();
                let fitting = rule.as_array().expect("a list of schemas").iter().filter(|schema| {
                    let mut inner = Vec::new();
                    check(root, schema, value, at, &mut inner);
                    let fits = inner.is_empty();
                    reasons.extend(inner);
                    fits
                });
                let fitting = fitting.count();
                if fitting == 0 || (keyword == "oneOf" && fitting > 1) {
                    fail(format!("{fitting} alternatives of {keyword} fit ({})", reasons.join("; ")));
                }
            }
            "allOf" => {
                for schema in rule.as_array().expect("a list of schemas") {
                    check(root, schema, value, at, found);
                }
            }
            other => panic!("{at}: unknown keyword {other}"),
        }
    }
}

fn resolve<'a>(root: &'a Value, reference: &Value) -> &'a Value {
    let path = reference.as_str().and_then(|text| text.strip_prefix('#')).expect("a reference into the same schema");
    root.pointer(path).unwrap_or_else(|| panic!("{path} is in the schema"))
}

fn others<'a>(rules: &Map<String, Value>, value: &'a Value) -> Vec<(&'a String, &'a Value)> {
    let known = rules.get("properties").and_then(Value::as_object);
    let all = value.as_object().into_iter().flatten();
    all.filter(|(name, _)| known.is_none_or(|known| !known.contains_key(*name))).collect()
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    }
}

/// `2026-01-31T23:59:59.123456Z`, RFC 3339 in UTC.
pub fn is_date_time(text: &str) -> bool {
    humantime::parse_rfc3339(text).is_ok()
}
