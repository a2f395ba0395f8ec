//! `stockade exec`: words → request → report.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::time::SystemTime;

use super::bridge;
use super::ending::{Ending, Limits};
use super::records::Records;
use super::{flags, run, say};
use crate::args::Args;
use crate::error::{Error, Result, Step};
use crate::launch::signals::Blocked;
use crate::plan::Bytes;
use crate::policy::Settings;
use crate::policy::value::Limit;
use crate::session::client::Client;
use crate::session::protocol::{self, Run, User};

/// Runs a command in a session and returns the exit code of its report.
pub fn main(args: &Args, readable: Result<()>) -> Result<u8> {
    let started = SystemTime::now();
    let (records, writable) = Records::open(args);
    let name = args.words.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let ready = writable.and(readable).and_then(|()| {
        let run = request(args)?;
        let client = Client::connect(&name)?;
        Ok((run, client, Blocked::block()?))
    });
    match ready {
        Err(error) => Err(run::refuse(records, &name, started, &error)),
        Ok((run, client, _)) if run.background => say(&(bridge::detached(client, run)? + "\n")),
        Ok((run, client, signals)) => {
            let ending = Ending::new(args, Limits::from(&run));
            match bridge::attached(client, run, args.is_on("interactive"), &signals) {
                Err(error) => Err(run::refuse(records, &name, started, &error)),
                Ok((report, session_ends)) => {
                    Ok(run::finish(report, records, &signals, ending.with_session(session_ends)))
                }
            }
        }
    }
}

/// The request that the words describe.
fn request(args: &Args) -> Result<Run> {
    let command = args.words.get(1..).unwrap_or_default();
    let missing = || Error::new(Step::Usage, "COMMAND", "is missing").hint("see `stockade exec --help`");
    if command.first().ok_or_else(missing)?.is_empty() {
        return Err(Error::new(Step::Usage, "COMMAND", "is an empty string"));
    }
    let (tty, background) = (args.is_on("tty"), args.is_on("detach"));
    let waits = tty || args.is_on("interactive") || args.is_on("summary") || args.value("report").is_some();
    if background && waits {
        let reason =
            "cannot be used together with --interactive, --tty, --summary and --report, which wait for the command";
        return Err(Error::new(Step::Usage, "--detach", reason));
    }
    let cwd = std::env::current_dir().ok();
    let settings = flags::settings(args, cwd.as_deref())?.settings;
    let deadlines = &settings.deadlines;
    let budget = settings.budget.plan()?;
    if args.value("output-limit").is_some() && tty {
        return Err(Error::new(Step::Usage, "--output-limit", "cannot be used together with --tty"));
    }
    if args.value("idle-timeout").is_some() && tty {
        return Err(Error::new(Step::Usage, "--idle-timeout", "cannot be used together with --tty"));
    }
    let limit =
        |limit: Option<Limit<crate::policy::value::Deadline>>| limit.and_then(Limit::bound).map(|time| time.get());
    Ok(Run {
        argv: command.iter().map(Bytes::from).collect(),
        env: None,
        add_env: environment(&settings, tty),
        cwd: settings.cwd.as_ref().map(|path| path.0.clone()),
        user: user(args)?,
        umask: settings.umask.map(|umask| umask.get()),
        tty: tty.then(bridge::size),
        timeout_us: limit(deadlines.timeout),
        kill_after_us: deadlines.kill_after.map(|time| time.get()),
        cpu_us: limit(deadlines.cpu_time),
        idle_us: limit(deadlines.idle_timeout),
        memory_bytes: budget.memory_bytes,
        pids: budget.pids,
        cpu_quota_us: budget.cpu_quota_us,
        output_limit: output_limit(&settings)?,
        explain_denials: settings.explain_denials,
        hash_program: args.value("report").map(|_| true),
        background,
    })
}

/// The session knows its names.
fn user(args: &Args) -> Result<Option<User>> {
    let Some(word) = args.value("user") else { return Ok(None) };
    let wrong = |reason: String| Error::new(Step::Usage, "--user", reason).hint("use UID[:GID] as numbers, or a name");
    let text = word.to_str().ok_or_else(|| wrong("is not UTF-8".into()))?;
    text.parse().map(Some).map_err(wrong)
}

fn output_limit(settings: &Settings) -> Result<Option<protocol::Limit>> {
    let Some(bytes) = settings.stdio.output_limit.and_then(Limit::bound) else { return Ok(None) };
    Ok(Some(protocol::Limit {
        bytes: bytes.get(),
        keep: settings.stdio.output_keep.unwrap_or(crate::plan::Keep::Head),
    }))
}

/// The variables of `--env-file` and `-e`, with the caller's values where only a name is given. A terminal's program needs
/// to know its kind.
fn environment(settings: &Settings, tty: bool) -> Vec<Bytes> {
    let entry = |name: &[u8], value: &[u8]| Bytes::from([name, b"=", value].concat());
    let caller = |name: &OsStr| std::env::var_os(name).map(|value: OsString| entry(name.as_bytes(), value.as_bytes()));
    let term = tty.then(|| caller(OsStr::new("TERM"))).flatten();
    let passed = settings.env.pass.iter().filter_map(|name| caller(OsStr::from_bytes(name.0.as_bytes())));
    let set = settings.env.set.iter().map(|(name, value)| entry(name.0.as_bytes(), value.0.as_bytes()));
    term.into_iter().chain(passed).chain(set).collect()
}
