//! The JSON Schemas of the values of a policy. A test generates the checked-in schemas with them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::budget_values::High;
use super::label::LabelValue;
use super::network::{HostSetting, NameServer, NetRule, NetworkSettings, NetworkTable, ProxySetting, PublishSetting};
use super::path::{DevicePath, HostPath, SandboxPath};
use super::rules::{BindPort, LandlockAbi, Port, RulePath, RuleTable, SeccompChoice, SeccompGroup};
use super::ulimit::{Bound, Ulimit, UlimitTable};
use super::value::*;

macro_rules! schemas {
    ($($type:ident: $pattern:expr;)+) => {$(
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                of::<Self>($pattern)
            }
        }
    )+};
}

schemas! {
    Version: "^1$";
    Size: r"^([0-9]+[bB]?|[0-9]+(\.[0-9]+)?[kKmMgGtT]([iI]?[bB])?)$";
    Duration: "^([0-9]+|([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$";
    Amount: r"^([0-9]+[bB]?|[0-9]+(\.[0-9]+)?[kKmMgGtT]([iI]?[bB])?)$";
    Deadline: "^([0-9]+|([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$";
    Cpus: r"^[0-9]+(\.[0-9]+)?$";
    Count: "^[1-9][0-9]*$";
    Pids: "^[1-9][0-9]*$";
    Weight: "^[1-9][0-9]*$";
    Id: "^[0-9]+$";
    Umask: "^[0-7]{1,5}$";
    Mode: "^[0-7]{1,5}$";
    OomScoreAdj: "^-?[0-9]+$";
    Hostname: "^[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?$";
    UserName: "^[a-z_][a-z0-9_-]{0,31}$";
    UserMap: "^(single|subordinate|host:[0-9]+(:[0-9]+)?)$";
    EnvName: "^[^=]+$";
    EnvPattern: "^[^=]+$";
    EnvValue: "";
    CpuList: "^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$";
    CapabilityName: "^([cC][aA][pP]_)?[A-Za-z_]+$";
    HostPath: "^.";
    SandboxPath: "^/";
    DevicePath: "^/dev/.";
    High: r"^(([0-9]+[bB]?|[0-9]+(\.[0-9]+)?[kKmMgGtT]([iI]?[bB])?)|[1-9][0-9]?%)$";
    SeccompChoice: "^.";
    SeccompGroup: "^[a-z-]+$";
    LandlockAbi: "^[1-9][0-9]{0,2}$";
    Port: "^[1-9][0-9]*$";
    BindPort: "^[0-9]+$";
    LabelValue: "^.{0,256}$";
    NetRule: "^.";
    HostSetting: "^.+[=:].+$";
    PublishSetting: "^(.+:)?[0-9]+:[0-9]+$";
    NameServer: "^[0-9a-fA-F.:\\[\\]]+$";
    ProxySetting: "^(http|socks5)://.+$";
}

fn of<T: Value>(pattern: &str) -> Schema {
    let string = json_schema!({ "type": "string", "pattern": pattern });
    let number = json_schema!({ "type": "number" });
    let hex = json_schema!({
        "type": "object", "required": ["hex"], "additionalProperties": false,
        "properties": { "hex": { "type": "string", "pattern": "^([0-9a-fA-F]{2})*$" } }
    });
    let mut forms = if T::TEXTUAL { vec![string] } else { Vec::new() };
    forms.extend(T::NUMERIC.then_some(number));
    forms.extend(T::BINARY.then_some(hex));
    let mut schema = if forms.len() == 1 { forms.remove(0) } else { json_schema!({ "anyOf": forms }) };
    schema.insert("description".into(), T::WHAT.into());
    schema
}

impl<T: Value + JsonSchema> JsonSchema for Limit<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}OrUnlimited", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<T>(), { "const": "unlimited" }] })
    }
}

impl JsonSchema for RulePath {
    fn schema_name() -> Cow<'static, str> {
        "RulePath".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": Self::WHAT,
            "anyOf": [{ "type": "string", "pattern": "^/" }, generator.subschema_for::<RuleTable>()]
        })
    }
}

impl JsonSchema for NetworkSettings {
    fn schema_name() -> Cow<'static, str> {
        "Network".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [generator.subschema_for::<crate::plan::Network>(), generator.subschema_for::<NetworkTable>()]
        })
    }
}

impl JsonSchema for Bound {
    fn schema_name() -> Cow<'static, str> {
        "UlimitBound".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "integer", "minimum": -1 }, { "type": "string" }] })
    }
}

impl JsonSchema for Ulimit {
    fn schema_name() -> Cow<'static, str> {
        "Ulimit".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": Self::WHAT,
            "anyOf": [
                { "type": "integer", "minimum": -1 },
                { "type": "string" },
                generator.subschema_for::<UlimitTable>(),
            ]
        })
    }
}
