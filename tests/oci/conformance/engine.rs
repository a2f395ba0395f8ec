//! Runs a case on each runtime and compares.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::case::{Case, Edit, Need, Out, Outcome};
use super::common::bundle::Bundle;
use super::{Runtime, common};

/// What a case's commands may take; a case that hangs fails.
const SECONDS: &str = "120";

/// Runs the cases, or those that are asked for, and fails with all that was unexpected.
pub(super) fn run_all(cases: &[Case]) {
    if !common::is_root() {
        return common::skip("not root");
    }
    let asked = std::env::var("STOCKADE_CASE").ok();
    let mut failures = String::new();
    for case in cases {
        if asked.as_ref().is_some_and(|part| !case.name.contains(part.as_str())) {
            continue;
        }
        if let Some(reason) = case.needs.iter().find_map(|need| need.missing()) {
            common::skip_part(case.name, &reason);
            continue;
        }
        for runtime in [Runtime::Ours, Runtime::Runc, Runtime::Crun] {
            let (expected, because) = case.expected(runtime);
            let (Some(expected), true) = (expected, Path::new(runtime.program()).exists()) else { continue };
            let Some(mut seen) = Seen::of(case, runtime) else { return };
            for _ in 0..9 {
                // crun fails if a hook ends before crun has written the state to it.
                if runtime == Runtime::Crun && seen.err.contains("writing to pipe") {
                    seen = Seen::of(case, runtime).unwrap();
                }
            }
            if asked.is_some() {
                eprintln!("{} on {runtime:?}: {seen}", case.name);
            }
            let unexpected = seen.unexpected(&expected);
            if !unexpected.is_empty() {
                let because = if because.is_empty() { String::new() } else { format!("expected because {because}\n") };
                let _ = writeln!(failures, "\n{} on {runtime:?}:\n{unexpected}{because}it {seen}", case.name);
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

impl Need {
    /// The reason to skip.
    fn missing(self) -> Option<String> {
        let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        match self {
            Self::CgroupV1 => v2.then(|| "this host has cgroup v2".to_owned()),
            Self::CgroupV2 => (!v2).then(|| "this host has cgroup v1".to_owned()),
            Self::File(path) => (!Path::new(path).exists()).then(|| format!("this host has no {path}")),
            Self::NotUml(reason) => common::host::is_uml().then(|| reason.to_owned()),
        }
    }
}

/// What a runtime did with a case.
struct Seen {
    runtime: Runtime,
    code: Option<i32>,
    out: String,
    err: String,
    left: String,
    /// The bundle's directory and the container's id, which outputs contain.
    names: [(&'static str, String); 2],
}

impl Seen {
    /// `None` if this host has no busybox for a root.
    fn of(case: &Case, runtime: Runtime) -> Option<Self> {
        let mut bundle = Bundle::new(runtime, "true")?;
        for (path, edit) in &case.edits {
            apply(&mut bundle.config, path, edit);
        }
        let names = [("{dir}", common::text(bundle.dir.path()).to_owned()), ("{id}", bundle.id.clone())];
        bundle.config = serde_json::from_str(&filled(&bundle.config.to_string(), &names)).unwrap();
        bundle.write_config();
        bundle.dir.file("console.py", include_str!("console.py"));
        let words: Vec<String> =
            runtime.words().iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        let prelude = format!("rt() {{ {} --root \"$B/state\" \"$@\"; }}\n{PRELUDE}", words.join(" "));
        bundle.dir.file("prelude", &prelude); // for shells in other namespaces
        let script = format!("{prelude}{}", case.host);
        // Containers keep their streams open, so pipes would not end. Both the script and the container append.
        let stream = |name: &str| fs::OpenOptions::new().create(true).append(true).open(bundle.dir.join(name)).unwrap();
        let mut command = Command::new("timeout");
        command.args(["-k", "5", SECONDS, "sh", "-c", &script]).current_dir(bundle.dir.path());
        command.env("B", bundle.dir.path()).env("ID", &bundle.id).env("PYTHON", common::PYTHON);
        command.env("RUNTIME", format!("{runtime:?}").to_lowercase());
        command.stdin(Stdio::null()).stdout(stream("host.out")).stderr(stream("host.err"));
        let code = command.status().unwrap().code();
        let read = |name: &str| String::from_utf8_lossy(&fs::read(bundle.dir.join(name)).unwrap()).into_owned();
        let (out, err) = (read("host.out"), read("host.err"));
        let _ = bundle.call(["delete", "--force", &bundle.id]);
        let gone = || bundle.left() == (Vec::new(), Vec::new(), false);
        let mut clock = common::clock::Clock::start();
        while runtime == Runtime::Ours && !gone() && !clock.is_past(Duration::from_secs(3)) {
            clock.sleep(Duration::from_millis(10));
        }
        let left = if runtime == Runtime::Ours && !gone() { format!("{:?}", bundle.left()) } else { String::new() };
        Some(Self { runtime, code, out, err, left, names })
    }

    /// Every difference from what is expected, a line each.
    fn unexpected(&self, expected: &Outcome) -> String {
        let mut lines = String::new();
        // crun fails with 1 or 255, whichever of its two processes notices the failure first.
        let crun = self.runtime == Runtime::Crun && (self.code, expected.code) == (Some(255), 1);
        if self.code != Some(expected.code) && !crun {
            let _ = writeln!(lines, "not the code {}", expected.code);
        }
        match &expected.out {
            Out::Is(text) if filled(text, &self.names) != self.out => {
                let _ = writeln!(lines, "not the output {:?}", filled(text, &self.names));
            }
            Out::Is(_) => {}
            Out::Has(parts) => {
                for part in parts.iter().map(|part| filled(part, &self.names)).filter(|part| !self.out.contains(part)) {
                    let _ = writeln!(lines, "no {part:?} in the output");
                }
            }
        }
        for part in expected.says.iter().filter(|part| !self.err.contains(*part)) {
            let _ = writeln!(lines, "no {part:?} in the errors");
        }
        if !self.left.is_empty() {
            let _ = writeln!(lines, "left behind: {}", self.left);
        }
        lines
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ended with {:?}, printed {:?} and reported {:?}", self.code, self.out, self.err)
    }
}

const PRELUDE: &str = include_str!("prelude.sh");

fn filled(text: &str, names: &[(&str, String)]) -> String {
    names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// Changes a place of the configuration, such as `mounts.0.options`. Missing objects on the way are made.
fn apply(config: &mut Value, path: &str, edit: &Edit) {
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut place = config;
    for key in parents.split('.').filter(|key| !key.is_empty()) {
        place = match key.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[key],
        };
    }
    match edit {
        Edit::Set(value) => match last.parse::<usize>() {
            Ok(index) => place[index] = value.clone(),
            Err(_) => place[last] = value.clone(),
        },
        Edit::Push(value) => {
            if place[last].is_null() {
                place[last] = json!([]);
            }
            place[last].as_array_mut().unwrap().push(value.clone());
        }
        Edit::Remove => {
            place.as_object_mut().unwrap().remove(last).unwrap_or_else(|| panic!("there is no {path} to remove"));
        }
    }
}
