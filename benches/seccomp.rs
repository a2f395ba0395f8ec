//! Measures what filters cost: the time to compile and attach the default profile and Docker's, compared with libseccomp (with
//! its binary tree) and seccompiler, and the time of system calls under a filter. Measurements alternate. Prints medians and
//! ratios.
//!
//! `cargo bench --bench seccomp`

#![allow(clippy::print_stdout)]

#[path = "../tests/common/compiled.rs"]
mod compiled;
#[allow(dead_code)]
#[path = "../tests/seccomp/oracles.rs"]
mod oracles;
#[allow(dead_code)]
#[path = "../tests/seccomp/probe.rs"]
mod probe;

use std::hint::black_box;
use std::time::Instant;

use stockade::plan::Network;
use stockade::seccomp::compiled as builtin_programs;
use stockade_seccomp::builtin::{Builtin, Guard};
use stockade_seccomp::{Action, Arch, Context, Instruction, Profile, Program, Width, load};

const CONTEXT: Context = Context { arch: Arch::X86_64, kernel: (6, 1), capabilities: &[], strict: false };
const ROUNDS: usize = 400;

fn main() {
    let tool = oracles::libseccomp_tool().map_err(|reason| println!("without libseccomp: {reason}")).ok();
    let mut profiles = vec![(Builtin::Default.name().to_owned(), Builtin::Default.json().as_bytes().to_vec())];
    profiles.push(("docker".to_owned(), Builtin::Docker.json().as_bytes().to_vec()));
    for path in std::fs::read_dir("target/seccomp-profiles").into_iter().flatten().flatten().map(|entry| entry.path()) {
        if let Ok(bytes) = std::fs::read(&path) {
            profiles.push((path.display().to_string(), bytes));
        }
    }
    for (name, json) in &profiles {
        compare(name, json, tool.as_ref());
    }
    ready();
    calls();
    if let Some(tool) = tool {
        drop(std::fs::remove_file(tool));
    }
}

/// A profile that all three compilers can express: a single stage, and for seccompiler a single action.
fn common(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    profile.stages.truncate(1);
    let contradicted = |number: &u32| Arch::X86_64.name(*number) == Some("setns");
    for rule in profile.stages[0].rules.iter_mut().filter(|rule| rule.action != Action::Allow) {
        rule.numbers.retain(|number| !contradicted(number));
    }
    for condition in profile.stages[0].rules.iter_mut().flat_map(|rule| &mut rule.conditions) {
        condition.width = if condition.width == Width::Mode { Width::Int } else { condition.width };
    }
    profile
}

fn compare(name: &str, json: &[u8], tool: Option<&std::path::PathBuf>) {
    let (profile, _) = load(json, None, &CONTEXT).unwrap_or_else(|error| panic!("{name}: {error}"));
    let whole = compile(&profile);
    let profile = common(&profile);
    let ours = compile(&profile);
    let mut single = profile.clone();
    single.stages[0].rules.retain(|rule| rule.action == Action::Allow);
    let seccompiler = oracles::seccompiler(&single);
    let rules = oracles::libseccomp_rules(&profile, 2);
    let libseccomp =
        tool.map(|tool| oracles::libseccomp(tool, &rules).unwrap_or_else(|error| panic!("{name}: {error}")));

    println!("\n{name}: instructions: stockade {} ({} as the others can express it)", whole.len(), ours.len());
    println!(
        "  libseccomp {:?}, seccompiler {:?}",
        libseccomp.as_ref().map(Vec::len),
        seccompiler.as_ref().map(Vec::len)
    );

    let mut read = Vec::new();
    let mut own = Vec::new();
    let mut theirs = Vec::new();
    for _ in 0..ROUNDS {
        read.push(time(|| load(black_box(json), None, &CONTEXT).map(|(profile, _)| compile(&profile))));
        own.push(time(|| compile(black_box(&profile))));
        theirs.push(time(|| oracles::seccompiler(black_box(&single))));
    }
    let libseccomp_times = tool.map(|tool| oracles::libseccomp_times(tool, &rules, ROUNDS / 4).unwrap_or_default());
    row("compile: stockade, rules to program", &mut own, None);
    let base = median(&mut own);
    row("compile: stockade, JSON to program", &mut read, Some(base));
    if let Some(mut times) = libseccomp_times {
        row("compile: libseccomp, rules to program", &mut times, Some(base));
    }
    row("compile: seccompiler, rules to program", &mut theirs, Some(base));

    let mut attach: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let programs = [Some(&ours), libseccomp.as_ref(), seccompiler.as_ref(), Some(&whole)];
        for (list, program) in attach.iter_mut().zip(programs) {
            list.extend(program.map(|program| probe::cost(Some(program), libc::SYS_getppid, [0; 6], 0).0));
        }
    }
    let base = median(&mut attach[0]);
    for (what, list) in ["stockade", "libseccomp", "seccompiler", "stockade, whole"].iter().zip(&mut attach) {
        if !list.is_empty() {
            row(&format!("attach: {what}"), list, Some(base));
        }
    }
}

/// The cost of a built-in profile that is already compiled.
fn ready() {
    println!();
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            time(|| {
                builtin_programs::program(Builtin::Default, black_box(Network::None), &[], Guard::STANDING, &CONTEXT)
                    .map(|program| program.instructions)
            })
        })
        .collect();
    row("the default, compiled at build time", &mut times, None);
}

/// Measures calls that the default profile always allows and calls whose arguments it checks. Compares them with no filter and
/// with a filter of one instruction, because every filter makes the kernel take its slower entry path.
fn calls() {
    println!();
    let program = builtin_programs::program(Builtin::Default, Network::None, &[], Guard::STANDING, &CONTEXT);
    let program = program.unwrap_or_else(|error| panic!("{error}")).instructions.into_owned();
    let allow = [Instruction { code: 0x06, jt: 0, jf: 0, k: Action::Allow.encode() }];
    let bad = u64::from(u32::MAX);
    let mut room = vec![0u8; 4096];
    let zero = std::fs::File::open("/dev/zero").map(std::os::fd::IntoRawFd::into_raw_fd).unwrap_or(-1);
    let path = c"/usr/lib".as_ptr() as u64;
    let probes = [
        ("warming up", libc::SYS_getppid, [0; 6]),
        ("getppid, always allowed", libc::SYS_getppid, [0; 6]),
        (
            "read 4 KiB of /dev/zero, always allowed",
            libc::SYS_read,
            [zero as u64, room.as_mut_ptr() as u64, 4096, 0, 0, 0],
        ),
        ("faccessat(/usr/lib), always allowed", libc::SYS_faccessat, [bad - 99, path, 0, 0, 0, 0]),
        ("fcntl(F_GETFL) of a bad fd, by argument", libc::SYS_fcntl, [bad, 3, 0, 0, 0, 0]),
        ("ioctl(TCGETS) of a bad fd, by argument", libc::SYS_ioctl, [bad, 0x5401, 0, 0, 0, 0]),
        ("ioctl(SIOCGIFINDEX) of a bad fd, by argument", libc::SYS_ioctl, [bad, 0x8933, 0, 0, 0, 0]),
    ];
    println!(
        "  {:<46} {:>8} {:>8} {:>8}   ratio to none, to allow-all",
        "calls, in ns", "none", "allow-all", "default"
    );
    for (what, number, args) in probes {
        let (mut none, mut all, mut ours) = (Vec::new(), Vec::new(), Vec::new());
        let (mut to_none, mut to_all) = (Vec::new(), Vec::new());
        for _ in 0..80 {
            let [free, allowed, filtered] = [None, Some(&allow[..]), Some(program.as_slice())]
                .map(|program| probe::cost(program, number, args, 20_000).1);
            none.push(free);
            all.push(allowed);
            ours.push(filtered);
            to_none.push(filtered / free);
            to_all.push(filtered / allowed);
        }
        if what == "warming up" {
            continue;
        }
        println!(
            "  {what:<46} {:8.1} {:8.1} {:8.1}   {:.3}, {:.3}",
            median(&mut none),
            median(&mut all),
            median(&mut ours),
            median(&mut to_none),
            median(&mut to_all)
        );
    }
}

fn compile(profile: &Profile) -> Vec<Instruction> {
    Program::compile(profile).unwrap_or_else(|error| panic!("{error}")).instructions.into_owned()
}

fn time<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    let result = work();
    let took = start.elapsed().as_nanos() as f64;
    drop(black_box(result));
    took
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn row(what: &str, values: &mut [f64], base: Option<f64>) {
    let median = median(values);
    let ratio = base.map_or_else(String::new, |base| format!("  {:6.2}x stockade's", median / base));
    println!("  {what:<42} {:9.1} µs{ratio}", median / 1000.0);
}
