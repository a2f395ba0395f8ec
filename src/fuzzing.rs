//! Properties of the parsers that hold for every input. Each panics if it does not hold.
//!
//! Compiled for tests, which check each property with the corpora in `fuzz/corpus` and mutations of them, and for `cargo fuzz`,
//! which searches further (`tests/fuzz`).

mod egress;

use std::ffi::{CString, OsStr, OsString};
use std::fmt::Debug;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stockade_seccomp::compare::difference;
use stockade_seccomp::{Arch, Context, Program, load, validate};

use crate::audit::Line;
use crate::cgroup::hierarchies;
use crate::cli::denials;
use crate::error::{Error, is_deceptive, printable, printable_json};
use crate::launch::{channels, failures};
use crate::oci::config;
use crate::oci::record;
use crate::plan::Bytes;
use crate::policy::{self, Caller, units};
use crate::report::{Command, Denial, Report};
use crate::rootfs::mount_point::Shape;
use crate::rootfs::within;
use crate::run::cpu;
use crate::run::files::message;
use crate::run::kernel_audit;
use crate::session;
use crate::sys::mount::{IN_ROOT, NO_MAGICLINKS, open_beneath};

/// A property of an input.
pub type Property = fn(&[u8]);

/// All properties, by the name of the target and of its corpus.
pub const PROPERTIES: [(&str, Property); 19] = [
    ("audit_line", audit_line),
    ("audit_record", audit_record),
    ("client_hello", egress::client_hello),
    ("dns_packet", egress::dns_packet),
    ("file_messages", file_messages),
    ("init_frames", init_frames),
    ("mountinfo", mountinfo),
    ("net_rule", egress::net_rule),
    ("oci_config", oci_config),
    ("policy", policy_file),
    ("proc_stat", proc_stat),
    ("proxy_answer", egress::proxy_answer),
    ("report", report),
    ("resolver", resolver),
    ("seccomp_profile", seccomp_profile),
    ("session_packet", session_packet),
    ("state", state),
    ("terminal", terminal),
    ("units", units_of),
];

/// The property of this name. Panics if there is none.
pub fn property(name: &str) -> Property {
    PROPERTIES.iter().find(|(known, _)| *known == name).expect("a property of this name").1
}

/// A line of the audit log is refused, or has the same meaning after it is written again.
fn audit_line(bytes: &[u8]) {
    let Some(line) = Line::parse(bytes) else { return };
    let mut again = serde_json::to_vec(&line).expect("a line is JSON");
    again.push(b'\n');
    let read = Line::parse(&again).expect("what was written is a line");
    assert_eq!(serde_json::to_vec(&read).ok().as_deref(), again.strip_suffix(b"\n"));
}

/// A packet of a session's client is refused, with the place of the mistake on one line, or means the same after it is written
/// again. A client reads any reply without a crash.
fn session_packet(bytes: &[u8]) {
    match session::read::request(bytes) {
        Err((_, error)) => assert!(!error.object.contains('\n'), "{error:?}"),
        Ok(request) => {
            let again = serde_json::to_vec(&request).expect("a request is JSON");
            assert_eq!(session::read::request(&again).expect("what was written is a request"), request);
        }
    }
    let _ = serde_json::from_slice::<session::protocol::Reply>(bytes);
    let _ = session::place::has_ended(bytes);
}

/// A message of a session's supervisor and its file server is refused, or means the same after it is written again. A name in
/// it is one in its directory.
fn file_messages(bytes: &[u8]) {
    if let Ok((number, request)) = message::Request::unpack(bytes) {
        assert_eq!(message::Request::unpack(&request.pack(number)), Ok((number, request)));
    }
    if let Ok((number, answer)) = message::Answer::unpack(bytes) {
        if let message::Answer::Entries(entries, _) = &answer {
            let is_name = |name: &[u8]| !name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..";
            assert!(entries.iter().all(|(name, _)| is_name(name.to_bytes())));
        }
        assert_eq!(message::Answer::unpack(&answer.pack(number)), Ok((number, answer)));
    }
}

/// Any audit record of the kernel can be parsed, and little of it is kept.
fn audit_record(bytes: &[u8]) {
    for message in bytes.split(|byte| *byte == 0xff) {
        let _ = kernel_audit::record(message);
    }
    let text = String::from_utf8_lossy(bytes);
    for (key, value) in kernel_audit::fields(&text) {
        assert!(text.contains(key));
        assert!(value.len() <= 4 * text.len(), "escaping makes four of one at most");
    }
}

/// A frame from inside the sandbox is rejected, or encodes to itself.
fn init_frames(bytes: &[u8]) {
    if let Some(channels::Message::Exited(exited)) = channels::parse(bytes, None) {
        let again = channels::exited_message(exited);
        let Some(channels::Message::Exited(read)) = channels::parse(&again, None) else {
            panic!("what was written is read")
        };
        assert_eq!(read, exited);
    }
    if let Some(failure) = failures::parse_failure(bytes) {
        let again = failures::parse_failure(&failures::failure_record(failure)).expect("a failure");
        assert_eq!((again.step, again.index, again.errno), (failure.step, failure.index, failure.errno));
    }
}

/// A mount with any directory name is found in the kernel's format, and any text can be parsed.
fn mountinfo(bytes: &[u8]) {
    let _ = hierarchies::memberships(&String::from_utf8_lossy(bytes));
    assert!(hierarchies::mounts(bytes).len() <= 1 + bytes.iter().filter(|byte| **byte == b'\n').count());
    let name: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0 && byte.is_ascii()).collect();
    let escaped: Vec<u8> = name
        .iter()
        .flat_map(|byte| match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
            other => vec![*other],
        })
        .collect();
    let line = [b"36 25 0:30 / /", &escaped[..], b" rw shared:9 - cgroup2 cgroup2 rw\n"].concat();
    let [mount] = hierarchies::mounts(&line).try_into().expect("one mount");
    assert_eq!(mount.at, Path::new(OsStr::from_bytes(&[b"/", &name[..]].concat())));
}

/// A configuration is refused with one printable line, or becomes a plan that survives being stored.
fn oci_config(bytes: &[u8]) {
    match config::read(bytes, Path::new("/bundle"), "id", config::Flags::default()) {
        Ok(config) => kept(&config.plan),
        Err(error) => one_line(&config::named("config.json", error)),
    }
    if let Err(error) = config::read_resources("resources", bytes) {
        one_line(&error);
    }
}

/// A policy is refused with printable text, or its plan is, or the plan survives being stored.
fn policy_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let settings = match policy::parse("policy.toml", text) {
        Ok(settings) => settings,
        Err(error) => return can_be_shown(&error),
    };
    let env = vec![(OsString::from("PATH"), OsString::from("/bin"))];
    let caller = Caller { env, profile_sha256: None, id: "id".to_owned() };
    match policy::resolve(settings, &["true".into()], &caller) {
        Ok(resolved) => kept(&resolved.plan),
        Err(error) => can_be_shown(&error),
    }
}

/// The CPU time of a process with any name is found, and any text can be parsed.
fn proc_stat(bytes: &[u8]) {
    let _ = cpu::ticks_of(&String::from_utf8_lossy(bytes));
    let stat = [b"7 (", bytes, b") S 1 2 3 4 5 6 7 8 9 10 100 20 3 1 20 0 1 0 99"].concat();
    assert_eq!(cpu::ticks_of(&String::from_utf8_lossy(&stat)), Some((103, 21)));
}

/// Any report is JSON that keeps its meaning, and its tables contain no terminal control sequences.
fn report(bytes: &[u8]) {
    let mut report = Report::blank("id", None, SystemTime::UNIX_EPOCH);
    let argv: Vec<_> = bytes.split(|byte| *byte == 0).map(|word| Bytes::from(word.to_vec())).collect();
    let text = String::from_utf8_lossy(bytes).into_owned();
    report.denials = Some(vec![Denial {
        layer: "seccomp".to_owned(),
        op: "openat".to_owned(),
        target: Some(text.clone()),
        rule: None,
        errno: Some(1),
        pid: Some(7),
        comm: argv.first().cloned(),
        count: 1,
        first_us: None,
        hint: Some(text),
        confidence: "exact".to_owned(),
    }]);
    report.command = Some(Command { argv, argv_sha256: String::new(), cwd: "/".into(), exe_sha256: None });
    let json = printable_json(&serde_json::to_string(&report).expect("a report is JSON"));
    assert!(!json.chars().any(is_deceptive), "{json:?}");
    assert_eq!(serde_json::from_str::<Report>(&json).expect("a report"), report);
    let shown = denials::table(&report).expect("there was a denial");
    assert!(!shown.chars().any(|c| is_deceptive(c) && c != '\n'), "{shown:?}");
}

/// A path that is created in a root resolves, through any links, to the kernel's result. Nothing is created anywhere else.
///
/// The bytes encode directories and links to create, and finally the path.
fn resolver(bytes: &[u8]) {
    let scene = Scene::new();
    let mut steps: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').take(24).map(path_of).collect();
    let Some(wanted) = steps.pop().filter(|path| !path.is_empty()) else { return };
    for step in steps {
        match step.iter().position(|byte| *byte == b'>') {
            Some(at) if at > 0 => drop(symlink(OsStr::from_bytes(&step[at + 1..]), scene.at(&step[..at]))),
            _ => drop(std::fs::create_dir(scene.at(&step))),
        }
    }
    let root = scene.root();
    let path = CString::new(wanted.iter().copied().filter(|byte| *byte != b'>').collect::<Vec<_>>()).expect("no NUL");
    if path.is_empty() {
        return;
    }
    let kernels = |path| open_beneath(&root, path, libc::O_PATH, IN_ROOT | NO_MAGICLINKS).and_then(identity);
    let before = kernels(&path);
    let made = within::create(root.as_fd(), &path, Shape::Directory).and_then(identity);
    match (before, made) {
        (Ok(before), made) => assert_eq!(made, Ok(before), "it was there"),
        (Err(Errno::ENOENT), Ok(made)) => {
            assert_eq!(kernels(&path), Ok(made), "{path:?} is there now: {:?}", String::from_utf8_lossy(bytes))
        }
        (Err(Errno::ENOENT), Err(_)) => {}
        (Err(errno), made) => assert_eq!(made, Err(errno)),
    }
    scene.check();
}

/// A profile is refused, or its program implements the profile for every call that could distinguish them.
fn seccomp_profile(bytes: &[u8]) {
    let context = Context { arch: Arch::X86_64, kernel: (6, 1), capabilities: &["CAP_SYS_PTRACE"], strict: false };
    let Ok((profile, _)) = load(bytes, None, &context) else { return };
    let Ok(program) = Program::compile(&profile) else { return };
    assert_eq!(validate(&program.instructions), Ok(()));
    assert_eq!(difference(&profile, &program.instructions), None);
    let again = Program::load_binary(&program.to_binary()).map(|program| program.sha256);
    assert_eq!(again, Ok(program.sha256));
}

/// A container's record is refused, or has the same meaning after it is written again.
fn state(bytes: &[u8]) {
    let Ok(record) = record::parse(bytes) else { return };
    let again = serde_json::to_vec(&record).expect("a record is JSON");
    let read = record::parse(&again).expect("what was written is a record");
    assert_eq!(serde_json::to_vec(&read).ok(), Some(again));
}

/// Displayed text contains no terminal control sequences and is not mistaken for other text.
fn terminal(bytes: &[u8]) {
    let shown = printable(&String::from_utf8_lossy(bytes));
    assert!(!shown.chars().any(|c| is_deceptive(c) && c != '\n'), "{shown:?}");
    assert_eq!(printable(&shown), shown);
    let shown = Bytes::from(bytes.to_vec()).to_string();
    assert!(!shown.chars().any(is_deceptive), "{shown:?}");
    let bytes = Bytes::from(bytes.iter().copied().filter(|byte| *byte != 0).collect::<Vec<_>>());
    let json = serde_json::to_string(&bytes).expect("bytes are JSON");
    assert_eq!(serde_json::from_str::<Bytes>(&json).expect("bytes"), bytes);
}

/// Sizes, durations and similar values are refused, or equal to the result of another parser.
fn units_of(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let times = |factor: Option<u64>| u128::from(factor?).checked_mul(number.parse().ok()?);
    if let Ok(size) = units::size(text) {
        let unit = unit.to_ascii_lowercase();
        let letters = unit.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
        let letter = letters.strip_suffix("ib").or_else(|| letters.strip_suffix('b')).unwrap_or(letters);
        let power = ["", "k", "m", "g", "t"].iter().position(|known| *known == letter);
        let factor = power.map(|power| 1 << (10 * power));
        if unit.starts_with('.') {
            let exact: f64 = text[..text.len() - letters.len()].parse().expect("a number");
            let off = exact * factor.expect("a unit") as f64 - size as f64;
            assert!(off > -1.0 - exact && off < 2.0 + exact, "{text}: {off}");
        } else {
            assert_eq!(Some(u128::from(size)), times(factor), "{text}");
        }
    }
    if let Ok(us) = units::duration(text) {
        let expected = match unit {
            "" => times(Some(1_000_000)),
            _ => humantime::parse_duration(text).ok().map(|duration| duration.as_micros()),
        };
        assert_eq!(Some(u128::from(us)), expected, "{text}");
    }
    if let Ok(quota) = units::cpus(text) {
        let cpus: f64 = text.parse().expect("a number");
        let dropped = cpus * 100_000.0 - quota as f64;
        assert!((-0.001..1.001).contains(&dropped), "{text}: {quota}"); // as exact as this parser
    }
    if let Ok(id) = units::id(text) {
        assert!(id < u32::MAX && text.parse() == Ok(id), "{text}");
    }
    if let Ok(whole) = units::whole(text) {
        assert_eq!(text.parse(), Ok(whole));
    }
    if let Ok(octal) = units::octal(text, 0o1777) {
        assert!(octal <= 0o1777 && u32::from_str_radix(text, 8) == Ok(octal), "{text}");
    }
    if let Ok(signed) = units::signed(text, -1000, 1000) {
        assert!((-1000..=1000).contains(&signed) && text.parse() == Ok(signed), "{text}");
    }
}

fn kept<P: Serialize + DeserializeOwned + PartialEq + Debug>(plan: &P) {
    let json = serde_json::to_vec(plan).expect("a plan is JSON");
    assert_eq!(&serde_json::from_slice::<P>(&json).expect("a plan"), plan);
}

fn can_be_shown(error: &Error) {
    let shown = error.to_string();
    assert!(!shown.is_empty() && !shown.chars().any(|c| is_deceptive(c) && c != '\n'), "{shown:?}");
}

fn one_line(error: &Error) {
    can_be_shown(error);
    assert!(!error.to_string().contains('\n'), "{error}");
}

fn identity(fd: OwnedFd) -> nix::Result<(u64, u64)> {
    fstat(fd).map(|stat| (stat.st_dev, stat.st_ino))
}

/// Names from a small set, so that they collide. No path can lead outside.
fn path_of(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().take(48).map(|byte| b"ab./>"[usize::from(*byte) % 5]).collect()
}

/// A root in an otherwise empty directory.
struct Scene(PathBuf);

impl Scene {
    fn new() -> Self {
        let name = format!("stockade-resolver-{}-{:?}", std::process::id(), std::thread::current().id());
        let place = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let scene = Self(place.join(name));
        std::fs::create_dir_all(scene.0.join("root")).expect("a place to try it in");
        scene
    }

    /// The path of a step of the scene. Never outside, because links lead out of it on the host.
    fn at(&self, path: &[u8]) -> PathBuf {
        let path = OsString::from_vec(path.to_vec());
        let root = self.root();
        let (parent, name) = match (Path::new(&path).parent(), Path::new(&path).file_name()) {
            (Some(parent), Some(name)) => (parent.to_owned(), name.to_owned()),
            _ => return PathBuf::from("/proc/self/none"),
        };
        let parent = if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent };
        let parent = CString::new(parent.into_os_string().into_vec()).expect("no NUL");
        match open_beneath(&root, &parent, libc::O_PATH | libc::O_DIRECTORY, IN_ROOT | NO_MAGICLINKS) {
            Ok(fd) => std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd)))
                .map_or_else(|_| PathBuf::from("/proc/self/none"), |parent| parent.join(name)),
            Err(_) => PathBuf::from("/proc/self/none"),
        }
    }

    fn root(&self) -> OwnedFd {
        open(&self.0.join("root"), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).expect("the root")
    }

    fn check(&self) {
        let names: Vec<_> =
            std::fs::read_dir(&self.0).expect("the scene").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["root"], "nothing beside the root");
        assert_eq!(std::fs::metadata(&self.0).expect("the scene").nlink(), 3);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests;
