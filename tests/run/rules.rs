//! Options and tables for system calls, paths and ports: their meaning in a plan, and the invalid ones.

use crate::common::{Outcome, Run, TempDir, callers, text};
use stockade::plan::{Facility, Landlock, MountKind, PathRule, RunPlan, Seccomp, SeccompProfile};

fn stockade(dir: &TempDir, verb: &str, options: &[&str]) -> Outcome {
    let words = [&[verb], options, &["true"]].concat();
    Run::new(callers()[0]).plain().cwd(dir.path()).opts(words).go()
}

fn here() -> TempDir {
    TempDir::new(callers()[0])
}

/// The plan, and the messages.
fn plan(dir: &TempDir, options: &[&str]) -> (RunPlan, String) {
    let outcome = stockade(dir, "plan", &[&["--json"], options].concat()).expect(0);
    (serde_json::from_slice(&outcome.stdout).unwrap(), outcome.stderr)
}

#[track_caller]
fn refuses(dir: &TempDir, options: &[&str], parts: &[&str]) {
    for verb in ["plan", "run"] {
        let outcome = stockade(dir, verb, options).expect(125);
        for part in parts {
            assert!(outcome.stderr.contains(part), "{options:?}: {part:?} is not in: {outcome}");
        }
        assert_eq!(outcome.text(), "");
    }
}

fn rules(paths: &[&str]) -> Option<Vec<PathRule>> {
    Some(paths.iter().map(|path| PathRule { path: path.into(), optional: false }).collect())
}

fn builtin(name: &str) -> SeccompProfile {
    SeccompProfile::Builtin(name.into())
}

fn seccomp(name: &str, allow: &[&str], strict: bool) -> Seccomp {
    let sha256 = stockade::seccomp::compiled::SHA256.to_owned();
    Seccomp { profile: builtin(name), sha256, allow: allow.iter().map(ToString::to_string).collect(), strict }
}

#[test]
fn both_layers_are_on_by_default() {
    let (plan, said) = plan(&here(), &[]);
    let default = seccomp("default", &[], false);
    assert_eq!(plan.confinement.seccomp, Some(default));
    assert_eq!(plan.confinement.landlock, Some(Landlock { minimum_abi: 2, ..Landlock::default() }));
    assert!(!plan.confinement.allow_degraded.contains(&Facility::Landlock));
    assert_eq!(said, "");
}

#[test]
fn flags_end_up_in_the_plan() {
    let dir = here();
    let (first, said) = plan(
        &dir,
        &[
            "--seccomp=docker",
            "--seccomp-allow=sysv",
            "--seccomp-allow",
            "nested",
            "--seccomp-strict",
            "--landlock=auto",
            "--landlock-abi=6",
            "--allow-read=/usr/./bin/",
            "--allow-read=/data:optional",
            "--allow-write=/tmp",
            "--allow-connect=443",
            "--allow-connect=80",
            "--allow-bind=0",
            "--network=loopback",
        ],
    );
    assert_eq!(first.confinement.seccomp, Some(seccomp("docker", &["sysv", "nested"], true)));
    assert_eq!(first.namespaces.nested, 64);
    let data = PathRule { path: "/data".into(), optional: true };
    let landlock = Landlock {
        minimum_abi: 6,
        read: Some([rules(&["/usr/bin"]).unwrap(), vec![data]].concat()),
        write: rules(&["/tmp"]),
        execute: None,
        connect_tcp: Some(vec![443, 80]),
        bind_tcp: Some(vec![0]),
    };
    assert_eq!(first.confinement.landlock, Some(landlock));
    assert_eq!(first.confinement.allow_degraded, [Facility::Landlock]);
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.contains("warning: seccomp group nested: user namespaces"), "{said}");
    assert!(said.contains("need --landlock off too"), "{said}");

    let (off, said) = plan(&dir, &["--seccomp", "unconfined", "--landlock", "off"]);
    assert!(off.confinement.seccomp.is_none() && off.confinement.landlock.is_none());
    assert!(said.contains("no seccomp profile") && said.contains("Landlock is off"), "{said}");
    assert_ne!(first.policy_sha256, off.policy_sha256);
    let (_, said) = plan(&dir, &["--network", "none", "--allow-connect", "80"]);
    assert!(said.contains("the network is none"), "{said}");
    let (listed, _) = plan(&dir, &["--allow-exec", "/usr", "--seccomp", "unconfined"]);
    assert_eq!(listed.confinement.guards, ["memory-programs", "core-limit", "init"]);
}

#[test]
fn the_text_of_a_plan_shows_the_rules() {
    let words =
        ["--seccomp=strict", "--seccomp-allow=aio", "--allow-read=/a:optional", "--allow-exec=/usr", "--allow-bind=1"];
    let text = stockade(&here(), "plan", &words).expect(0).text();
    for part in ["built-in strict, and aio", "ABI 4", "read only /a (if it exists)", "execute only /usr", "bind only 1"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_list_of_programs_makes_every_writable_mount_noexec() {
    let dir = here();
    let words = ["--workspace", ".", "--tmpfs", "/scratch:exec", "--ro", text(dir.path())];
    let (open, _) = plan(&dir, &words);
    assert!(open.mounts.iter().any(|mount| !mount.read_only && !mount.noexec));
    let (listed, _) = plan(&dir, &[&words[..], &["--allow-exec", "/usr"]].concat());
    assert!(listed.mounts.iter().all(|mount| mount.read_only || mount.noexec));
    let read_only =
        listed.mounts.iter().filter(|mount| matches!(mount.kind, MountKind::Bind { .. }) && mount.read_only);
    assert!(read_only.clone().count() > 0 && read_only.clone().all(|mount| !mount.noexec));
    refuses(&dir, &[&words[..], &["--allow-exec", "/scratch/x"]].concat(), &["allow-exec /scratch/x", "/scratch"]);
    refuses(&dir, &["--allow-exec", "/dev/shm"], &["/dev/shm", "writable", "hint"]);
}

/// A list for which the kernel is too old is not requested.
#[test]
fn a_list_requires_the_abi_that_enforces_it() {
    let dir = here();
    let none = ["--network", "none"];
    for (options, abi) in [
        (&[][..], 2),
        (&["--landlock-abi", "1", "--allow-read", "/usr", "--allow-exec", "/usr"], 1),
        (&["--allow-write", "/tmp"], 3),
        (&["--landlock-abi", "1", "--allow-write", "/tmp"], 3),
        (&["--landlock-abi", "6", "--allow-write", "/tmp"], 6),
        (&[&none[..], &["--allow-connect", "443"]].concat(), 2),
        (&["--allow-connect", "443"], 4),
        (&["--allow-bind", "0", "--allow-write", "/tmp"], 4),
    ] {
        let (planned, _) = plan(&dir, options);
        assert_eq!(planned.confinement.landlock.unwrap().minimum_abi, abi, "{options:?}");
    }
}

#[test]
fn layers_add_rules_and_replace_profiles() {
    let dir = here();
    let policy = "version = 1\n[seccomp]\nprofile = 'docker'\nallow = ['sysv']\nstrict = true\n\
                  [landlock]\nmode = 'auto'\nminimum_abi = 4\nread = ['/usr']\nwrite = []\nexecute = ['/usr/bin']\nconnect = [80]\n";
    dir.file("p.toml", policy);
    let (alone, _) = plan(&dir, &["-p", "./p.toml"]);
    let landlock = alone.confinement.landlock.unwrap();
    assert_eq!((landlock.minimum_abi, landlock.read, landlock.write), (4, rules(&["/usr"]), Some(Vec::new())));
    assert_eq!(alone.confinement.allow_degraded, [Facility::Landlock]);
    let words = [
        "-p",
        "./p.toml",
        "--seccomp=strict",
        "--seccomp-allow=aio",
        "--network=none",
        "--allow-read=/etc",
        "--allow-read=/usr",
    ];
    let (more, _) =
        plan(&dir, &[&words[..], &["--allow-connect=443", "--landlock=require", "--landlock-abi=1"]].concat());
    assert_eq!(more.confinement.seccomp, Some(seccomp("strict", &["sysv", "aio"], true)));
    let landlock = more.confinement.landlock.unwrap();
    assert_eq!((landlock.minimum_abi, landlock.read), (3, rules(&["/usr", "/etc"])), "the list of writable paths");
    assert_eq!((landlock.connect_tcp, landlock.bind_tcp), (Some(vec![80, 443]), None));
    assert!(more.confinement.allow_degraded.is_empty());
    // `--landlock off` drops the policy's rules; rules beside it are a contradiction.
    let (off, _) = plan(&dir, &["-p", "./p.toml", "--landlock", "off"]);
    assert!(off.confinement.landlock.is_none() && off.mounts.iter().any(|mount| !mount.read_only && !mount.noexec));
    let contradiction = ["is off, but rules are given for it"];
    refuses(&dir, &["-p", "./p.toml", "--landlock", "off", "--allow-read", "/etc"], &contradiction);
    dir.file("off.toml", "version = 1\n[landlock]\nmode = 'off'\n");
    refuses(&dir, &["-p", "./off.toml", "--allow-bind", "1"], &contradiction);
    let (on, _) = plan(&dir, &["-p", "./off.toml", "--allow-bind", "1", "--landlock", "require"]);
    assert_eq!(on.confinement.landlock.unwrap().bind_tcp, Some(vec![1]));
}

#[test]
fn the_strict_policy_has_the_strict_profile() {
    let (strict, _) = plan(&here(), &["-p", "strict"]);
    assert_eq!(strict.confinement.seccomp.unwrap().profile, builtin("strict"));
    assert_eq!(strict.confinement.landlock.unwrap().minimum_abi, 2);
}

#[test]
fn bad_words_are_refused_by_flag_and_reason() {
    let dir = here();
    dir.file("allow.json", r#"{ "defaultAction": "SCMP_ACT_ALLOW" }"#);
    let table: &[(&[&str], &[&str])] = &[
        (&["--seccomp", ""], &["--seccomp", "\"\" is not"]),
        (&["--seccomp", "strcit"], &["--seccomp", "did you mean strict?", ".json"]),
        (&["--seccomp", "inet"], &["--seccomp", "default, strict, docker, unconfined"]),
        (&["--seccomp", "~/p.json"], &["--seccomp", "not expanded"]),
        (&["--seccomp", "./missing.json"], &["missing.json", "ENOENT"]),
        (&["--seccomp", "."], &["--seccomp", "\".\""]),
        (&["--seccomp", "./"], &["directory"]),
        (&["--seccomp-bpf", ""], &["--seccomp-bpf", "empty"]),
        (&["--seccomp-bpf", "missing"], &["missing", "ENOENT"]),
        (&["--seccomp-allow", "sysvv"], &["--seccomp-allow", "did you mean sysv?"]),
        (&["--seccomp-allow", "everything"], &["--seccomp-allow", "known: debug, sysv"]),
        (&["--seccomp", "strict", "--seccomp-bpf", "x"], &["--seccomp-bpf", "together with --seccomp:"]),
        (&["--seccomp", "strict", "--security-opt", "seccomp=docker"], &["--security-opt", "together with --seccomp:"]),
        (&["--security-opt", ""], &["--security-opt", "seccomp=FILE"]),
        (&["--security-opt", "seccomp"], &["--security-opt", "\"seccomp\" is unknown"]),
        (&["--security-opt", "seccomp="], &["--security-opt"]),
        (&["--security-opt", "seccomp=builtin"], &["--security-opt", "\"builtin\""]),
        (&["--security-opt", "seccomp:unconfined"], &["--security-opt", "seccomp=FILE"]),
        (&["--security-opt", "apparmor=unconfined"], &["\"apparmor=unconfined\" is unknown", "no-new-privileges"]),
        (&["--security-opt", "label=disable"], &["\"label=disable\" is unknown"]),
        (&["--security-opt", "no-new-privileges=false"], &["--security-opt", "turned off"]),
        (&["--landlock", "on"], &["--landlock", "\"on\"", "require, auto or off"]),
        (&["--landlock-abi", "0"], &["--landlock-abi", "1 to 999"]),
        (&["--landlock-abi", "v3"], &["--landlock-abi", "\"v3\""]),
        (&["--landlock", "off", "--allow-write", "/tmp"], &["Landlock", "is off, but"]),
        (&["--allow-read", ""], &["--allow-read", "empty"]),
        (&["--allow-read", "etc"], &["--allow-read", "not an absolute path"]),
        (&["--allow-read", "/a/../b"], &["--allow-read", "\"..\""]),
        (&["--allow-write", "/a:ro"], &["--allow-write", "\"ro\" is not the option"]),
        (&["--allow-exec", "/a:optinal"], &["--allow-exec", "\"optinal\""]),
        (&["--allow-connect", "0"], &["--allow-connect", "1 and 65535"]),
        (&["--allow-connect", "https"], &["--allow-connect", "\"https\""]),
        (&["--allow-bind", "65536"], &["--allow-bind", "65535"]),
        (&["--allow-bind", "80-90"], &["--allow-bind", "\"80-90\""]),
    ];
    for (words, parts) in table {
        refuses(&dir, words, parts);
    }
    let group = ["--seccomp-bpf", "allow.json", "--seccomp-allow", "sysv"];
    let run = stockade(&dir, "run", &group).expect(125);
    assert!(run.stderr.contains("allow.json"), "{run}");
}

#[test]
fn bad_tables_are_refused_by_place_key_and_reason() {
    let dir = here();
    let table: &[(&str, &[&str])] = &[
        ("seccomp = 'strict'", &["p.toml:2:11: seccomp"]),
        ("[seccomp]\nprofil = 'strict'", &["p.toml:3:1: seccomp.profil", "did you mean `profile`?"]),
        ("[seccomp]\nprofile = 1", &["p.toml:3:11: seccomp.profile", "1 is a number"]),
        ("[seccomp]\nprofile = 'strcit'", &["seccomp.profile", "did you mean strict?"]),
        ("[seccomp]\nprofile = './missing.json'", &["missing.json", "ENOENT"]),
        ("[seccomp]\nallow = 'sysv'", &["seccomp.allow"]),
        ("[seccomp]\nallow = ['sysvv']", &["seccomp.allow", "did you mean sysv?"]),
        ("[seccomp]\nstrict = 'yes'", &["seccomp.strict", "boolean"]),
        ("[landlock]\nmode = 'on'", &["landlock.mode", "unknown value `on`", "known: require, auto, off"]),
        ("[landlock]\nabi = 3", &["p.toml:3:1: landlock.abi", "unknown key"]),
        ("[landlock]\nminimum_abi = 0", &["landlock.minimum_abi", "1 to 999"]),
        ("[landlock]\nminimum_abi = 2.0", &["landlock.minimum_abi"]),
        ("[landlock]\nread = '/usr'", &["landlock.read"]),
        ("[landlock]\nread = ['/usr', 'etc']", &["landlock.read", "\"etc\""]),
        ("[landlock]\nread = [{ optional = true }]", &["landlock.read", "missing key `path`"]),
        ("[landlock]\nread = [{ path = '/a', optinal = true }]", &["landlock.read", "did you mean `optional`?"]),
        ("[landlock]\nconnect = ['http']", &["landlock.connect", "\"http\""]),
        ("[landlock]\nconnect = [0]", &["landlock.connect", "1 and 65535"]),
        ("[landlock]\nbind = [65536]", &["landlock.bind", "65535"]),
        ("[landlock]\nmode = 'off'\nwrite = []", &["is off, but rules are given"]),
    ];
    for (policy, parts) in table {
        dir.file("p.toml", format!("version = 1\n{policy}\n"));
        refuses(&dir, &["-p", "./p.toml"], parts);
    }
    let many = format!("version = 1\nlandlock.read = [{}]\n", "'/a',".repeat(1_001));
    dir.file("p.toml", many);
    refuses(&dir, &["-p", "./p.toml"], &["landlock.read", "1001 entries"]);
    let strange = "version = 1\n[landlock]\nread = [{ path = { hex = '2fff' } }, { path = '/a:b' }, '/c:optional']\n";
    dir.file("p.toml", strange);
    let (plan, _) = plan(&dir, &["-p", "./p.toml"]);
    let read = plan.confinement.landlock.unwrap().read.unwrap();
    let shown: Vec<(String, bool)> = read.iter().map(|rule| (rule.path.to_string(), rule.optional)).collect();
    assert_eq!(shown, [("/\\xff".into(), false), ("/a:b".into(), false), ("/c".into(), true)]);
}

#[test]
fn the_policys_hash_covers_what_the_profile_says() {
    let dir = here();
    let hash = |content: &str, name: &str, flag: &str| {
        dir.file(name, content);
        let (plan, _) = plan(&dir, &[flag, &format!("./{name}")]);
        (plan.policy_sha256, plan.confinement.seccomp.unwrap().sha256)
    };
    let allow = r#"{ "defaultAction": "SCMP_ACT_ALLOW" }"#;
    let first = hash(allow, "profile.json", "--seccomp");
    let log = hash(r#"{ "defaultAction": "SCMP_ACT_LOG" }"#, "profile.json", "--seccomp");
    assert_ne!(first.0, log.0, "the same path, another profile");
    assert_ne!(first.1, log.1);
    assert_eq!(first, hash(allow, "profile.json", "--seccomp"));
    let program = |value| hash(&format!("\u{6}\0\0\0\0\0{value}\u{7f}"), "program.bpf", "--seccomp-bpf").0;
    assert_ne!(program("\u{7e}"), program("\u{7f}"));
}

/// A plan is executed with the profile that it was made with, or not at all.
#[test]
fn a_profile_that_changed_since_the_plan_was_made_is_refused() {
    let dir = here();
    let file = dir.file("profile.json", r#"{ "defaultAction": "SCMP_ACT_ALLOW" }"#);
    let (plan, _) = plan(&dir, &["--seccomp", "./profile.json"]);
    let prepare = || stockade::seccomp::install::prepare(plan.confinement.seccomp.as_ref(), &(&plan).into());
    assert_eq!(prepare().map(|_| ()).map_err(|error| error.to_string()), Ok(()));
    dir.file("profile.json", r#"{ "defaultAction":  "SCMP_ACT_ALLOW" }"#);
    let error = prepare().map(|_| ()).expect_err("another file").to_string();
    assert!(error.contains("has changed since the plan was made") && error.contains(text(&file)), "{error}");
}
