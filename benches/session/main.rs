//! Measures commands in a session against a bare spawn of the same program, a fresh `stockade run`, and `exec` of container
//! runtimes and Docker. The contestants take turns in one run; quote the ratios. `docs/benchmarks.md` explains the results.
//!
//! ```text
//! cargo bench --bench session -- [--rounds N] [--many N]
//! ```
//!
//! `--many` is the number of idle sessions, and a tenth of the number of commands in one, that are looked at for growth (100).

#![allow(clippy::print_stdout)]

#[allow(dead_code)]
#[path = "../startup/bundle.rs"]
mod bundle;
#[allow(dead_code)]
#[path = "../startup/contest.rs"]
mod contest;
mod growth;
#[allow(dead_code)]
#[path = "../startup/programs.rs"]
mod programs;
#[allow(dead_code)]
#[path = "../startup/runtimes.rs"]
mod runtimes;
mod session;
#[allow(dead_code)]
#[path = "../startup/start.rs"]
mod start;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use contest::Contestant;
use session::Session;

/// The container of `docker exec`.
const CONTAINER: &str = "stockade-bench-session";

/// A contestant: its name, and one command of it.
type Row<'a> = (String, Box<dyn FnMut() -> Option<Duration> + 'a>);

fn main() {
    let mut words = std::env::args().skip(1);
    let (mut rounds, mut many) = (300, 100);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|text| text.parse().ok());
        match word.as_str() {
            "--rounds" => rounds = number().unwrap_or(rounds),
            "--many" => many = number().unwrap_or(many),
            _ => {} // cargo passes --bench
        }
    }
    if let Err(error) = run(rounds, many) {
        eprintln!("session: {error}");
        std::process::exit(1);
    }
}

fn run(rounds: usize, many: usize) -> Result<(), String> {
    // Before the work directory is made, because that may hide cgroup v2.
    let session = Session::make(&format!("bench-{}", std::process::id()))?;
    let work = bundle::Work::new()?;
    let busybox = work.busybox.clone().ok_or("needs a static busybox")?;
    let program = busybox.to_str().ok_or("busybox has a strange path")?;
    let runtimes = runtimes::Runtimes::start(&work, &["exec".to_owned()]);
    let docker = docker(program);
    let mut client = session.connect()?;
    let shell = |words: &[&str]| timed(Command::new(words[0]).args(&words[1..]));
    let stockade = programs::STOCKADE.as_str();
    let mut rows: Vec<Row<'_>> = vec![
        ("a bare spawn".to_owned(), Box::new(|| shell(&[program, "true"]))),
        ("a command in a session, over its socket".to_owned(), Box::new(|| client.command(&[program, "true"]).ok())),
        ("stockade exec".to_owned(), Box::new(|| shell(&[stockade, "exec", &session.name, program, "true"]))),
        ("stockade run".to_owned(), Box::new(|| shell(&[stockade, "run", "--", program, "true"]))),
    ];
    for contestant in runtimes.contestants.iter().filter(|one| is_in_memory(one)) {
        match &contestant.missing {
            None => rows.push((contestant.name.to_owned(), Box::new(|| start::once(contestant)))),
            Some(why) => println!("without {}: {why}", contestant.name),
        }
    }
    match &docker {
        Ok(()) => rows.push((
            "docker exec".to_owned(),
            Box::new(|| shell(&["docker", "exec", CONTAINER, "/bin/busybox", "true"])),
        )),
        Err(why) => println!("without docker exec: {why}"),
    }
    let medians = turns(&mut rows, rounds);
    let names: Vec<String> = rows.iter().map(|(name, _)| name.clone()).collect();
    drop(rows);
    println!("| command | median | / bare spawn | / command in a session |\n|---|---|---|---|");
    for (name, median) in names.iter().zip(&medians) {
        println!("| {name} | {median:.0} µs | {:.2} | {:.2} |", median / medians[0], median / medians[1]);
    }
    if docker.is_ok() {
        let _ = shell(&["docker", "rm", "-f", CONTAINER]);
    }
    growth::at_once(&session, program)?;
    growth::idle(&session);
    growth::commands(&session, program, many * 10)?;
    growth::sessions(many)
}

fn is_in_memory(contestant: &Contestant) -> bool {
    contestant.name.contains("exec") && !contestant.name.contains("disk")
}

/// Medians of all rows in microseconds. Each round takes each row once, in another order.
fn turns(rows: &mut [Row<'_>], rounds: usize) -> Vec<f64> {
    let mut samples: Vec<Vec<f64>> = rows.iter().map(|_| Vec::new()).collect();
    let mut seed = 1u64;
    for round in 0..rounds + 5 {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        for last in (1..order.len()).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            order.swap(last, (seed >> 33) as usize % (last + 1));
        }
        for at in order {
            let took = rows[at].1();
            if let Some(took) = took.filter(|_| round >= 5) {
                samples[at].push(took.as_nanos() as f64 / 1000.0);
            }
        }
    }
    samples.into_iter().map(median).collect()
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

fn timed(command: &mut Command) -> Option<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let fine = command.status().is_ok_and(|status| status.success());
    let took = begun.elapsed();
    fine.then_some(took)
}

/// Starts a container with nothing but busybox.
fn docker(busybox: &str) -> Result<(), String> {
    let image = format!(
        "d=$(mktemp -d) && mkdir $d/bin && cp {busybox} $d/bin/busybox && tar -C $d -c . | docker import - {CONTAINER} && rm -r $d \
         && docker run -d --rm --name {CONTAINER} --network none {CONTAINER} /bin/busybox sleep 86400"
    );
    timed(Command::new("sh").args(["-c", &image]))
        .map(drop)
        .ok_or_else(|| "no Docker daemon runs a container here".to_owned())
}
