//! Measures the start of `stockade run` and `stockade-oci` against a bare exec, a minimal C program, bubblewrap, crun, runc and
//! whole engines. The contestants take turns in one run, so that a slowdown of the machine affects all of them. Quote the ratios
//! of medians. `docs/benchmarks.md` explains the results.
//!
//! ```text
//! cargo bench --bench startup -- [--rounds N] [--engine-rounds N] [--cold-rounds N] [--seconds S] [--drop-caches]
//!                                [--only WORD,…] [--no-engines] [--json FILE] [--svg FILE]
//! ```
//!
//! Some contestants require root and are left out without it. A program that is not installed is left out with a message.

#![allow(clippy::print_stdout)]

mod bundle;
mod chart;
mod check;
mod contest;
mod engines;
mod measure;
mod programs;
mod runtimes;
mod start;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use contest::Contestant;
use measure::Figures;

/// The command line options.
struct Options {
    rounds: usize,
    engine_rounds: usize,
    cold_rounds: usize,
    seconds: f64,
    drop_caches: bool,
    only: Vec<String>,
    engines: bool,
    json: Option<PathBuf>,
    svg: Option<PathBuf>,
}

impl Options {
    fn read() -> Result<Self, String> {
        let mut options = Self {
            rounds: 300,
            engine_rounds: 15,
            cold_rounds: 15,
            seconds: 0.4,
            drop_caches: false,
            only: Vec::new(),
            engines: true,
            json: None,
            svg: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} takes a value"));
            let number = |text: String| text.parse::<usize>().map_err(|_| format!("{text:?} is not a number"));
            match word.as_str() {
                "--rounds" => options.rounds = number(value()?)?,
                "--engine-rounds" => options.engine_rounds = number(value()?)?,
                "--cold-rounds" => options.cold_rounds = number(value()?)?,
                "--seconds" => options.seconds = value()?.parse().map_err(|_| "--seconds takes a number")?,
                "--drop-caches" => options.drop_caches = true,
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                "--no-engines" => options.engines = false,
                "--json" => options.json = Some(value()?.into()),
                "--svg" => options.svg = Some(value()?.into()),
                "--bench" => {} // passed by cargo
                other => return Err(format!("unknown argument {other}")),
            }
        }
        Ok(options)
    }
}

fn main() {
    let result = Options::read().and_then(|options| run(&options));
    if let Err(error) = result {
        eprintln!("startup: {error}");
        std::process::exit(1);
    }
}

fn run(options: &Options) -> Result<(), String> {
    start::adopt_orphans();
    let work = bundle::Work::new()?;
    let mut contestants = contest::all(&work);
    let mut runtimes = runtimes::Runtimes::start(&work, &options.only);
    contestants.append(&mut runtimes.contestants);
    let engines = engines::Engines::start(&work, options.engines);
    contestants.extend(engines.contestants(&work));
    contestants.retain(|one| options.only.is_empty() || options.only.iter().any(|word| one.name.contains(word)));
    println!("{}\n", table::host());
    let mut figures = Vec::new();
    for contestant in &contestants {
        let checked = check::check(contestant);
        println!("{}", table::claims(contestant, &checked));
        figures.push(Figures::of(contestant, checked));
    }
    let ready: Vec<usize> = (0..contestants.len()).filter(|one| figures[*one].runs()).collect();
    warm(options, &contestants, &ready, &mut figures);
    cold(options, &contestants, &ready, &mut figures);
    throughput(options, &contestants, &ready, &mut figures);
    for one in &ready {
        figures[*one].overhead_kib = measure::overhead_kib(&contestants[*one]);
    }
    drop(engines);
    drop(runtimes);
    println!("\n{}", table::times(&figures));
    println!("{}", table::ratios(&figures));
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&table::json(&figures)).map_err(|error| error.to_string())?;
        std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if let Some(path) = &options.svg {
        chart::draw(path, &figures)?;
    }
    Ok(())
}

/// Whether a contestant is measured in this round. Engines get fewer rounds, spread over all.
fn is_in_round(contestant: &Contestant, round: usize, options: &Options) -> bool {
    let every = if contestant.engine { options.rounds.div_ceil(options.engine_rounds.max(1)).max(1) } else { 1 };
    round.is_multiple_of(every)
}

fn warm(options: &Options, contestants: &[Contestant], ready: &[usize], figures: &mut [Figures]) {
    for one in ready {
        start::once(&contestants[*one]); // not measured: it fills the page cache
    }
    for round in 0..options.rounds {
        for one in &measure::shuffled(ready, round as u64) {
            if is_in_round(&contestants[*one], round, options) {
                figures[*one].warm.extend(start::once(&contestants[*one]));
            }
        }
    }
}

fn cold(options: &Options, contestants: &[Contestant], ready: &[usize], figures: &mut [Figures]) {
    for round in 0..options.cold_rounds {
        for one in ready {
            if contestants[*one].engine && round >= options.engine_rounds {
                continue;
            }
            measure::forget(&contestants[*one], options.drop_caches);
            figures[*one].cold.extend(start::once(&contestants[*one]));
        }
    }
}

fn throughput(options: &Options, contestants: &[Contestant], ready: &[usize], figures: &mut [Figures]) {
    for (level, in_flight) in measure::IN_FLIGHT.into_iter().enumerate() {
        for _ in 0..3 {
            for one in ready {
                let contestant = &contestants[*one];
                let seconds = if contestant.engine { options.seconds * 4.0 } else { options.seconds };
                let rate = measure::rate(contestant, in_flight, Duration::from_secs_f64(seconds));
                figures[*one].rates[level].push(rate);
            }
        }
    }
}
