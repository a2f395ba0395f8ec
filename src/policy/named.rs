//! Where a policy names a path, for errors about that path.

use std::ffi::OsStr;
use std::path::Path;

use super::load::parse;
use super::mount::RequestKind;
use super::path::HostPath;
use super::settings::Settings;
use super::{diagnose, file};
use crate::plan::Bytes;

/// How many files that extend each other are searched.
const MOST_FILES: usize = 8;

/// The key that leads to this path, `FILE:LINE:COLUMN: KEY`. Later policies are searched first, because they win.
pub fn key_of(path: &str, profiles: &[&OsStr], cwd: Option<&Path>) -> Option<String> {
    profiles.iter().rev().find_map(|profile| {
        let (mut next, mut base) = (profile.to_os_string(), cwd.map(Path::to_owned));
        for _ in 0..MOST_FILES {
            let file = file::read(file::POLICY, Path::new(&next), base.as_deref()).ok()?;
            let (name, text) = (Bytes::from(&next).to_string(), std::str::from_utf8(&file.bytes).ok()?.to_owned());
            let settings = parse(&name, &text).ok()?;
            base = file.path.parent().map(Path::to_owned);
            if let Some(key) = key_in(&settings, path, base.as_deref()) {
                let place = diagnose::place_of(&key, &text)?;
                return Some(format!("{name}:{place}: {key}"));
            }
            next = settings.extends?.into();
        }
        None
    })
}

fn key_in(settings: &Settings, path: &str, base: Option<&Path>) -> Option<String> {
    let is_it = |found: &Bytes| found.to_string() == path;
    let of_host = |found: &HostPath| {
        let mut found = found.clone();
        found.anchor(base).is_ok() && is_it(&found.0)
    };
    let mount = settings.mounts.iter().enumerate().find_map(|(index, mount)| {
        let is_source = matches!(&mount.kind, RequestKind::Bind(source) if of_host(source));
        let is_place = mount.destination.as_ref().is_some_and(|destination| is_it(&destination.0));
        let key = if is_source { "source" } else { "destination" };
        (is_source || is_place).then(|| format!("mounts[{index}].{key}"))
    });
    let alone = [("workspace", &settings.workspace), ("rootfs", &settings.rootfs)];
    let alone = alone.into_iter().find(|(_, found)| found.as_ref().is_some_and(of_host));
    let device = settings.devices.iter().position(|device| is_it(&device.0));
    mount.or(alone.map(|(key, _)| key.to_owned())).or(device.map(|index| format!("devices[{index}]")))
}
