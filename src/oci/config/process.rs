//! `process`: what is executed, as whom, and what it carries.

use stockade_json::At;

use super::{Read, absolute, flag, id, schedule, signed, strings, text, unsigned};
use crate::plan::container::{CapabilitySets, Process};
use crate::plan::{Capability, Command, Rlimit, RlimitResource};

/// As many words as anybody needs.
const MAX_ARGS: usize = 1 << 20;

/// Reads one.
pub fn read(at: &At, warnings: &mut Vec<String>) -> Read<Process> {
    let argv = strings(at, "args")?;
    if argv.first().is_none_or(|first| first.as_bytes().is_empty()) {
        return Err(at.lacks("args must name a program"));
    }
    if argv.len() > MAX_ARGS {
        return Err(at.lacks("args are too many"));
    }
    let cwd = at.get("cwd")?.ok_or_else(|| at.lacks("cwd is missing"))?;
    let user = at.get("user")?;
    let user_id = |key| user.map_or(Ok(0), |user| id(&user, key));
    let umask = match &user {
        Some(user) => unsigned(user, "umask", 0o777)?.map(|mask| mask as u32),
        None => None,
    };
    let mut groups = Vec::new();
    if let Some(user) = &user
        && let Some(list) = user.get("additionalGids")?
    {
        for item in list.items()? {
            groups.push(item.number(u64::from(u32::MAX) - 1)? as u32);
        }
    }
    if groups.len() > 65_536 {
        return Err(at.lacks("user.additionalGids are more than the 65536 that the kernel takes"));
    }
    let oom_score_adj = match signed(at, "oomScoreAdj")? {
        Some(score) if !(-1000..=1000).contains(&score) => {
            return Err(at.lacks(format!("oomScoreAdj is {score}; it goes from -1000 to 1000")));
        }
        score => score.map(|score| score as i16),
    };
    let (initial_cpu_affinity, cpu_affinity) = schedule::affinity(at)?;
    let command = Command {
        argv,
        env: strings(at, "env")?,
        cwd: absolute(&cwd)?,
        umask: umask.unwrap_or(0o022),
        rlimits: rlimits(at)?,
        oom_score_adj,
    };
    let mut process = Process {
        command,
        uid: user_id("uid")?,
        gid: user_id("gid")?,
        groups,
        capabilities: capabilities(at, warnings)?,
        no_new_privs: flag(at, "noNewPrivileges")?,
        apparmor_profile: text(at, "apparmorProfile")?.filter(|text| !text.is_empty()),
        selinux_label: text(at, "selinuxLabel")?.filter(|text| !text.is_empty()),
        scheduler: schedule::scheduler(at)?,
        io_priority: schedule::io_priority(at)?,
        cpu_affinity,
        initial_cpu_affinity,
        terminal: flag(at, "terminal")?,
        console_size: console_size(at)?,
    };
    add_home(&mut process);
    Ok(process)
}

fn console_size(at: &At) -> Read<Option<(u16, u16)>> {
    let Some(size) = at.get("consoleSize")? else { return Ok(None) };
    let side = |key| unsigned(&size, key, 65_535).map(|side| side.unwrap_or(0) as u16);
    let (rows, columns) = (side("height")?, side("width")?);
    Ok((rows != 0 || columns != 0).then_some((rows, columns)))
}

fn capabilities(at: &At, warnings: &mut Vec<String>) -> Read<CapabilitySets> {
    let Some(sets) = at.get("capabilities")? else { return Ok(CapabilitySets::default()) };
    let mut set = |name: &str| -> Read<Vec<Capability>> {
        let mut known = Vec::new();
        for item in sets.get(name)?.iter().map(At::items).collect::<Read<Vec<_>>>()?.into_iter().flatten() {
            match Capability::from_word(item.text()?) {
                Some(capability) if known.contains(&capability) => {}
                Some(capability) => known.push(capability),
                // The specification wants such a configuration to work on.
                None => warnings.push(format!(
                    "{}: {:?} is no capability known here, and left out",
                    item.path(),
                    item.text()?
                )),
            }
        }
        Ok(known)
    };
    Ok(CapabilitySets {
        bounding: set("bounding")?,
        effective: set("effective")?,
        inheritable: set("inheritable")?,
        permitted: set("permitted")?,
        ambient: set("ambient")?,
    })
}

fn rlimits(at: &At) -> Read<Vec<Rlimit>> {
    let Some(list) = at.get("rlimits")? else { return Ok(Vec::new()) };
    let mut limits: Vec<Rlimit> = Vec::new();
    for item in list.items()? {
        let kind = item.get("type")?.ok_or_else(|| item.lacks("type is missing"))?;
        let name = kind.text()?.strip_prefix("RLIMIT_").unwrap_or_default().to_ascii_lowercase();
        let resource: RlimitResource = name.parse().map_err(|()| kind.wrong("is no resource limit of this kernel"))?;
        if limits.iter().any(|other| other.resource == resource) {
            return Err(kind.wrong("is limited twice"));
        }
        let number = |key| -> Read<u64> {
            let value = item.get(key)?.ok_or_else(|| item.lacks(format!("{key} is missing")))?;
            // Some engines write "unlimited" as -1.
            match value.signed() {
                Ok(-1) => Ok(u64::MAX),
                _ => value.number(u64::MAX),
            }
        };
        let (soft, hard) = (number("soft")?, number("hard")?);
        if soft > hard {
            return Err(item.lacks("soft is more than hard"));
        }
        let limit = |value: u64| Some(value).filter(|value| *value != u64::MAX);
        limits.push(Rlimit { resource, soft: limit(soft), hard: limit(hard), clamp: false });
    }
    Ok(limits)
}

/// A program without `HOME` gets one, as engines leave it to the runtime.
pub fn add_home(process: &mut Process) {
    let env = &mut process.command.env;
    if !env.iter().any(|variable| variable.as_bytes().starts_with(b"HOME=")) {
        env.push(if process.uid == 0 { "HOME=/root" } else { "HOME=/" }.into());
    }
}
