//! Several clients give random commands about one container at the same time. Some order of the commands explains all outcomes,
//! and nothing is left behind.

use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::bundle::{Bundle, ours};
use crate::common::history::{Call, Outcome, Verb, explain};
use crate::common::host::is_uml;
use crate::common::text;
use serde_json::{Value, json};

const CLIENTS: usize = 16;

/// A generator of pseudorandom numbers, equal for equal seeds (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize) % end
    }

    /// A random command. Commands that others undo often are more frequent.
    fn verb(&mut self) -> Verb {
        let often = [
            (Verb::Create, 20),
            (Verb::Start, 16),
            (Verb::State, 20),
            (Verb::Exec, 8),
            (Verb::Pause, 6),
            (Verb::Resume, 8),
            (Verb::Kill, 8),
            (Verb::Delete, 10),
            (Verb::Force, 4),
        ];
        let mut at = self.below(often.iter().map(|(_, times)| times).sum());
        for (verb, times) in often {
            if at < times {
                return verb;
            }
            at -= times;
        }
        unreachable!()
    }
}

/// Runs a command and classifies its outcome.
fn give(bundle: &Bundle, verb: Verb, out: &str) -> Outcome {
    let id = bundle.id.as_str();
    let path = |kind: &str| bundle.dir.join(&format!("{out}.{kind}"));
    let (pid, said, complaint) = (path("pid"), path("said"), path("complaint"));
    let words = match verb {
        Verb::Create => vec!["create", "--bundle", text(bundle.dir.path()), "--pid-file", text(&pid), id],
        Verb::Start => vec!["start", id],
        Verb::State => vec!["state", id],
        Verb::Exec => vec!["exec", id, "true"],
        Verb::Pause => vec!["pause", id],
        Verb::Resume => vec!["resume", id],
        Verb::Kill => vec!["kill", id, "KILL"],
        Verb::Delete => vec!["delete", id],
        Verb::Force => vec!["delete", "--force", id],
    };
    // Files, not pipes, because a container keeps its streams open.
    let file = |path| std::fs::File::create(path).unwrap();
    let _ = std::fs::remove_file(&pid);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stockade-oci"));
    command.arg("--root").arg(bundle.dir.join("state")).args(words).stdin(Stdio::null());
    let status = command.stdout(file(&said)).stderr(file(&complaint)).status().unwrap();
    let read = |path| std::fs::read_to_string(path).unwrap();
    let complaint = read(&complaint);
    if status.success() {
        return match verb {
            Verb::Create => Outcome::Done(read(&pid).trim().parse().unwrap()),
            Verb::State => {
                let state: Value = serde_json::from_str(&read(&said)).unwrap();
                Outcome::Is(state["status"].as_str().unwrap().to_owned(), state["pid"].as_i64().unwrap() as i32)
            }
            _ => Outcome::Done(0),
        };
    }
    // Classified by command and message: `exec` returns the status of a killed program and prints nothing.
    let known = [
        ("container does not exist", Outcome::Missing),
        ("container with given ID already exists", Outcome::Exists),
        ("cannot start a container that has stopped", Outcome::Stopped),
        ("cannot exec in a stopped container", Outcome::Stopped),
        ("container not running or created", Outcome::Paused),
        ("container not running", Outcome::Stopped),
        ("container not paused", Outcome::NotPaused),
        ("cannot start an already running container", Outcome::Running),
        ("cannot start a container in the paused state", Outcome::Paused),
        ("cannot exec in a paused container", Outcome::Paused),
        ("that is not stopped: running", Outcome::Running),
        ("that is not stopped: paused", Outcome::Paused),
        ("died before its program was executed", Outcome::Lost(0)),
        ("died while it was checked", Outcome::Lost(0)),
    ];
    if verb == Verb::Create && complaint.contains("first process died while it was") {
        return Outcome::Lost(std::fs::read_to_string(&pid).map_or(0, |pid| pid.trim().parse().unwrap()));
    }
    if let Some((_, outcome)) = known.into_iter().find(|(words, _)| complaint.contains(words)) {
        return outcome;
    }
    // If the container ends while a process joins it, any call of that process may fail, or it dies silently.
    let failed = matches!((status.code(), complaint.is_empty()), (Some(255), false) | (Some(137), true));
    let lost = verb == Verb::Exec && failed && !complaint.contains("panicked");
    if lost { Outcome::Lost(0) } else { Outcome::Other(format!("{status}: {complaint}")) }
}

/// Runs `many` commands about some containers from all clients, and checks that an order explains the outcomes.
fn history(seed: u64, bundles: &[Bundle], many: usize) -> usize {
    let (began, calls) = (Instant::now(), Mutex::new(vec![Vec::new(); bundles.len()]));
    let now = || began.elapsed().as_micros() as u64;
    let (last, done) = (AtomicU64::new(0), AtomicUsize::new(0));
    let call = |client: usize, of: usize, verb: Verb| {
        let given = now();
        let outcome = give(&bundles[of], verb, &format!("client{client}"));
        let span = (given, now());
        calls.lock().unwrap()[of].push(Call { client, verb, span, outcome });
        last.store(span.1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (call, done) = (&call, &done);
            scope.spawn(move || {
                let mut random = Random(seed.wrapping_mul(1_000_003) + client as u64 + 1);
                for _ in 0..many / CLIENTS {
                    let of = random.below(bundles.len());
                    call(client, of, random.verb());
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        // A command that waits for a paused container waits until another command resumes it.
        while done.load(Ordering::Relaxed) < CLIENTS {
            std::thread::sleep(Duration::from_millis(20));
            if now() > last.load(Ordering::Relaxed) + if is_uml() { 5_000_000 } else { 1_000_000 } {
                (0..bundles.len()).for_each(|of| call(CLIENTS, of, Verb::Force));
            }
        }
    });
    (0..bundles.len())
        .for_each(|of| [Verb::Force, Verb::State].map(|verb| call(CLIENTS, of, verb)).into_iter().collect());
    let calls = calls.into_inner().unwrap();
    for (calls, bundle) in calls.iter().zip(bundles) {
        explain(calls).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        bundle.expect_nothing_left(&format!("seed {seed}"));
    }
    calls.iter().map(Vec::len).sum()
}

/// A long-running container. If `filtered`, it has a filter that `start` verifies.
fn container(filtered: bool) -> Option<Bundle> {
    let mut bundle = Bundle::new(common::bundle::Runtime::Ours, "exec sleep 1000")?;
    let marker = json!(format!("MARKER={}", bundle.id));
    bundle.config["process"]["env"].as_array_mut().unwrap().push(marker);
    if filtered {
        bundle.config["linux"]["seccomp"] = json!({
            // A start of ours makes munmap(2), so this filter is installed last.
            "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["mkdir", "munmap"], "action": "SCMP_ACT_ERRNO" }],
        });
    }
    bundle.command(["x"]); // writes the configuration
    Some(bundle)
}

fn histories(of: usize) {
    let all = std::env::var_os("STOCKADE_SWEEP").is_some_and(|wanted| wanted == "all");
    let (histories, many) = match (all, is_uml()) {
        (true, _) => (500, 120),
        (false, true) => (4, 40),
        (false, false) => (8, 80),
    };
    ours(|_| {
        let mut given = 0;
        for seed in 0..histories {
            eprintln!("seed {seed}");
            let Some(bundles) = (0..of).map(|at| container((seed + at as u64) % 2 == 1)).collect::<Option<Vec<_>>>()
            else {
                return;
            };
            given += history(seed, &bundles, many);
        }
        eprintln!("{given} commands");
    });
}

#[test]
fn commands_about_one_container_have_an_order() {
    histories(1);
}

#[test]
fn commands_about_some_containers_have_an_order() {
    histories(3);
}

/// Impossible histories are rejected: each of these is a possible bug of a runtime.
#[test]
fn impossible_histories_are_rejected() {
    use Outcome::{Done, Exists, Is, Lost, Missing, NotPaused, Paused, Running, Stopped};
    use Verb::{Create, Delete, Exec, Force, Kill, Pause, Resume, Start, State};
    let is = |status: &str, pid| Is(status.to_owned(), pid);
    let explained = |calls: &[(usize, Verb, u64, u64, Outcome)]| {
        let call = |(client, verb, given, over, outcome): &(usize, Verb, u64, u64, Outcome)| Call {
            client: *client,
            verb: *verb,
            span: (*given, *over),
            outcome: outcome.clone(),
        };
        explain(&calls.iter().map(call).collect::<Vec<_>>())
    };
    let created = (0, Create, 0, 10, Done(7));
    let started = (0, Start, 11, 20, Done(0));
    let possible = [
        // Concurrent: one of two creates succeeds, and a state command may see any stage.
        vec![
            created.clone(),
            (1, Create, 1, 9, Exists),
            (2, State, 2, 3, is("creating", 0)),
            (3, State, 2, 3, Missing),
        ],
        // Seen before its end, in its earlier state.
        vec![
            created.clone(),
            started.clone(),
            (1, State, 12, 13, is("running", 7)),
            (2, State, 14, 15, is("running", 7)),
        ],
        // It dies some time after it was killed.
        vec![
            created.clone(),
            (1, Kill, 11, 12, Done(0)),
            (1, State, 13, 14, is("created", 7)),
            (1, State, 15, 16, is("stopped", 0)),
        ],
        // Deleted while other commands use it.
        vec![
            created.clone(),
            (1, Start, 11, 40, Lost(0)),
            (2, Exec, 12, 41, Lost(0)),
            (3, Force, 20, 30, Done(0)),
            (4, State, 31, 32, Missing),
        ],
        vec![
            created.clone(),
            (1, Pause, 11, 12, Done(0)),
            (1, Start, 13, 14, Paused),
            (1, Resume, 15, 16, Done(0)),
            (1, Resume, 17, 18, NotPaused),
        ],
        vec![
            created.clone(),
            (1, Delete, 11, 20, Done(0)),
            (2, Create, 12, 30, Done(8)),
            (3, State, 31, 32, is("created", 8)),
        ],
    ];
    for (at, calls) in possible.iter().enumerate() {
        explained(calls).unwrap_or_else(|error| panic!("{at}: {error}"));
    }
    let impossible = [
        // Two containers with one name.
        vec![created.clone(), (1, Create, 1, 9, Done(8))],
        // Seen after its deletion, before its creation, or in an earlier state than another command saw.
        vec![created.clone(), (1, Force, 11, 20, Done(0)), (2, State, 21, 22, is("stopped", 0))],
        vec![(1, State, 0, 1, is("created", 7)), (0, Create, 2, 10, Done(7))],
        vec![
            created.clone(),
            started.clone(),
            (1, State, 12, 13, is("running", 7)),
            (2, State, 14, 15, is("created", 7)),
        ],
        vec![created.clone(), (1, State, 11, 12, is("creating", 0))],
        // Outcomes of an earlier container of the same name.
        vec![
            created.clone(),
            (0, Force, 11, 12, Done(0)),
            (0, Create, 13, 14, Done(8)),
            (0, State, 15, 16, is("created", 7)),
        ],
        // Started or stopped without a command, or twice.
        vec![created.clone(), (1, State, 11, 12, is("running", 7))],
        vec![created.clone(), started.clone(), (1, State, 21, 22, is("stopped", 0))],
        vec![created.clone(), started.clone(), (1, Start, 11, 20, Done(0))],
        vec![created.clone(), (1, Exec, 11, 12, Stopped)],
        vec![created.clone(), (1, Start, 11, 20, Lost(0)), (2, Kill, 21, 22, Done(0))],
        vec![created.clone(), (1, Exec, 11, 20, Lost(0)), (2, Kill, 21, 22, Done(0))],
        // Paused and running at once.
        vec![created.clone(), (1, Pause, 11, 12, Done(0)), (1, State, 13, 14, is("created", 7))],
        vec![created.clone(), (1, Pause, 11, 12, Done(0)), (1, Exec, 13, 14, Done(0))],
        vec![created.clone(), (1, Pause, 11, 12, Done(0)), (1, Resume, 13, 14, NotPaused)],
        vec![created.clone(), (1, Resume, 11, 12, Done(0))],
        // Deleted while running, deleted twice, or not deleted.
        vec![created.clone(), started.clone(), (1, Delete, 21, 22, Done(0))],
        vec![created.clone(), (1, Force, 11, 12, Done(0)), (1, Delete, 13, 14, Done(0))],
        vec![created.clone(), (1, Force, 11, 12, Done(0)), (1, Create, 13, 14, Exists)],
        vec![created.clone(), (1, Delete, 11, 12, Running)],
        vec![created.clone(), (1, Delete, 11, 12, Outcome::Other("panicked".to_owned()))],
    ];
    for (at, calls) in impossible.iter().enumerate() {
        assert!(explained(calls).is_err(), "{at}: {calls:?}");
    }
}
