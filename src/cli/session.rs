//! The verbs that act on a session: `wait`, `stop`, `kill`, `pause`, `unpause`, `rm`.

use std::time::{Duration, Instant};

use super::{print_error, say};
use crate::args::Args;
use crate::error::{Error, Result, Step};
use crate::plan::signal_number;
use crate::report::Report;
use crate::session::client::{Client, refusal};
use crate::session::place::{Home, Place, killed, missing};
use crate::session::protocol::{OWN, Operation};
use crate::session::record::Record;

/// How long `rm -f` waits for the end of a session that it has ended.
const REMOVAL: Duration = Duration::from_secs(20);
/// How long a session may take between its last answer and its end.
const LAST_STEPS: Duration = Duration::from_secs(10);

/// The name of the session.
pub fn name(args: &Args) -> String {
    args.words.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Acts on each of the named sessions, also if that fails for an earlier one.
fn each(args: &Args, act: impl Fn(&str) -> Result<u8>) -> Result<u8> {
    let mut failed = None;
    for name in &args.words {
        if let Err(error) = act(&name.to_string_lossy())
            && let Some(earlier) = failed.replace(error)
        {
            print_error(&earlier);
        }
    }
    failed.map_or(Ok(0), Err)
}

/// Waits until sessions end, and prints their exit codes, as docker does.
pub fn wait(args: &Args) -> Result<u8> {
    each(args, |name| say(&format!("{}\n", end_of(name, None)?.exit_code)))
}

/// The report of a session, when it has ended. If `stop` is given, it is asked to end, with this grace.
fn end_of(name: &str, stop: Option<Operation>) -> Result<Report> {
    let asked = Client::connect(name).and_then(|mut client| {
        let wait = client.send(Operation::Wait { command: None }, Vec::new())?;
        stop.map(|stop| client.send(stop, Vec::new())).transpose()?;
        loop {
            let Some((reply, _)) = client.reply(true)? else { continue };
            let reply = refusal(reply)?;
            if reply.id == Some(wait) {
                return Ok(reply);
            }
        }
    });
    let answer = asked.and_then(|reply| {
        let json = reply.report.as_ref().map_or("", |report| report.get());
        let damaged = |error| Error::new(Step::SessionConnect, name, format!("its report is damaged: {error}"));
        serde_json::from_str(json).map_err(|error: serde_json::Error| damaged(error.to_string()))
    });
    // It ended long ago, or takes its last steps. When they are done, the name is free or can be removed.
    match (over(name), answer) {
        (Err(gone), answer) => answer.map_err(|_| gone), // it was made with --rm
        (Ok(_), Ok(report)) => Ok(report),
        (Ok(None), Err(error)) => Err(error),
        (Ok(Some(place)), Err(_)) => {
            Ok(Record::of(&place)?.and_then(|record| record.end).ok_or_else(|| killed(name))?.report)
        }
    }
}

/// The place of a session that has ended. One that takes its last steps is waited for. `None` if it does not end.
pub fn over(name: &str) -> Result<Option<Place>> {
    let place = Home::open()?.ok_or_else(|| missing(name))?.place(name)?;
    let until = Instant::now() + LAST_STEPS;
    while place.is_alive()? {
        if Instant::now() >= until {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(Some(place))
}

/// Ends a session politely, and waits for its end.
pub fn stop(args: &Args) -> Result<u8> {
    let grace_us = match args.value("time") {
        Some(time) => {
            let wrong = |reason: String| Error::new(Step::Usage, "--time", reason);
            let text = time.to_str().ok_or_else(|| wrong("is not UTF-8".to_owned()))?;
            Some(crate::policy::units::duration(text).map_err(wrong)?)
        }
        None => None,
    };
    each(args, |name| end(name, grace_us))
}

/// Ends a session and waits for its end. One that has ended already is not an error.
fn end(name: &str, grace_us: Option<u64>) -> Result<u8> {
    end_of(name, Some(Operation::Stop { grace_us })).map(|_| 0)
}

/// Sends a signal to a command of a session. SIGKILL ends the session.
pub fn kill(args: &Args) -> Result<u8> {
    let signal = match args.value("signal").map(|word| word.to_string_lossy()) {
        None => libc::SIGKILL,
        Some(text) => signal_number(&text).filter(|number| *number > 0).ok_or_else(|| {
            Error::new(Step::Usage, "--signal", format!("{text:?} is not the name or number of a signal"))
        })?,
    };
    let command = args.text("command")?;
    each(args, |name| {
        let operation = match command.map(str::to_owned) {
            None if signal == libc::SIGKILL => return end(name, Some(0)),
            Some(command) if signal == libc::SIGKILL => Operation::Kill { command },
            command => Operation::Signal { command: command.unwrap_or_else(|| OWN.to_owned()), signal: signal as u8 },
        };
        Client::connect(name)?.ask(operation).map(|_| 0)
    })
}

/// Stops all processes, or lets them continue.
pub fn freeze(args: &Args, frozen: bool) -> Result<u8> {
    each(args, |name| {
        let operation = if frozen { Operation::Pause } else { Operation::Unpause };
        Client::connect(name)?.ask(operation).map(|_| 0)
    })
}

/// Whether it is not in its last steps.
fn listens(name: &str) -> bool {
    let home = Home::open().ok().flatten();
    home.and_then(|home| home.place(name).ok()).is_some_and(|place| place.has_socket())
}

/// Removes what is kept of sessions.
pub fn remove(args: &Args) -> Result<u8> {
    each(args, |name| remove_one(name, args.is_on("force")))
}

fn remove_one(name: &str, force: bool) -> Result<u8> {
    let until = Instant::now() + REMOVAL;
    let mut asked = false;
    loop {
        let home = Home::open()?.ok_or_else(|| missing(name))?;
        match home.hold(name) {
            Ok(Some(held)) => return held.remove().map(|()| 0),
            Err(_) if asked => return Ok(0), // it was made with --rm, and has removed itself
            Err(error) => return Err(error),
            Ok(None) if !force && listens(name) => {
                let error = Error::new(Step::SessionPlace, name, "the session runs");
                return Err(error.hint("stop it, or use --force"));
            }
            Ok(None) if Instant::now() > until => {
                return Err(Error::new(Step::SessionConnect, name, "the session does not end"));
            }
            Ok(None) if force && !asked => {
                asked = true;
                let _ = end(name, Some(0));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(5)), // its last steps
        }
    }
}
