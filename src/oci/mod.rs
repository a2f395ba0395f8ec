//! The OCI runtime: the command line for container engines.
//!
//! `config` turns `config.json` into a plan, which `container` executes. `record` is the state of a
//! container that is kept between commands, and `store` is the directory with all records. There is no daemon.

mod args;
mod check;
mod checkpoint;
pub(crate) mod config;
mod console;
mod create;
mod delete;
mod events;
mod exec;
mod features;
mod image;
mod inspect;
mod log;

mod notify;
pub(crate) mod record;
mod report;
mod signal;
mod spec;
mod store;
mod update;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use self::config::Flags;
use self::log::{Level, Log};
use self::store::Store;
use crate::args::{Args, Dialect, help};
use crate::container::foreground::Foreground;
use crate::error::{Error, Result, Step};
use crate::launch::steps;
use crate::sys::process;
use crate::sys::regex::Pattern;

/// The context of every command.
#[derive(Debug)]
struct Runtime {
    args: Args,
    store: Store,
    log: Log,
}

/// The program `stockade-oci`: runs the command that its arguments name, and returns the exit code.
pub fn main(words: &[OsString]) -> u8 {
    let (args, read) = Args::read(&args::STOCKADE_OCI, Dialect::Oci, words);
    if read.is_ok() && args.is_on("version") {
        return say(&version());
    }
    if read.is_ok() && (args.help || args.name().is_empty()) {
        return say(&help(&args.full_name(), args.verb()));
    }
    let (log, level) = Log::of(&args);
    if log.has(Level::Debug) {
        let log = log.clone();
        steps::show(move |step| log.debug(step));
    }
    let runtime = Runtime { log, store: Store::new(args.path("root")), args };
    match read.and(level).and_then(|()| runtime.dispatch()) {
        Ok(code) => code,
        Err(error) => {
            runtime.log.error(&error);
            // Engines distinguish a failed exec from a program's exit code by 255.
            if runtime.args.name() == "exec" { 255 } else { 1 }
        }
    }
}

impl Runtime {
    /// Calls the command's function.
    fn dispatch(&self) -> Result<u8> {
        match self.args.verb().name {
            "create" => create::create(self),
            "start" => create::start(self),
            "run" => create::run(self),
            "exec" => exec::exec(self),
            "state" => inspect::state(self),
            "list" => inspect::list(self),
            "ps" => inspect::ps(self),
            "kill" => signal::kill(self),
            "pause" => signal::freeze(self, true),
            "resume" => signal::freeze(self, false),
            "delete" => delete::delete(self),
            "update" => update::update(self),
            "events" => events::events(self),
            "check" => check::check(self),
            "features" => features::features(self),
            "spec" => spec::spec(self),
            "checkpoint" => checkpoint::checkpoint(self),
            "restore" => checkpoint::restore(self),
            verb => Err(Error::new(Step::Usage, verb, "unknown command")),
        }
    }

    /// The options that affect the configuration.
    fn flags(&self) -> Result<Flags> {
        let manager = self.args.text("cgroup-manager")?.unwrap_or_default();
        if !matches!(manager, "" | "cgroupfs" | "systemd" | "disabled") {
            let reason = "must be cgroupfs, systemd or disabled";
            return Err(Error::new(Step::Usage, format!("--cgroup-manager {manager}"), reason));
        }
        Ok(Flags {
            systemd_cgroup: self.args.is_on("systemd-cgroup") || manager == "systemd",
            no_cgroup: manager == "disabled",
            no_new_keyring: self.args.is_on("no-new-keyring"),
        })
    }

    /// Calls a function for the container that the command names, or with `--regex` for each one whose id matches. Of several
    /// errors, the last is returned and the others are logged.
    fn for_each_match(&self, of_one: impl Fn(&str) -> Result<u8>) -> Result<u8> {
        let id = self.args.id()?;
        if !self.args.is_on("regex") {
            return of_one(id);
        }
        let wrong = || Error::new(Step::Usage, format!("--regex {id}"), "is not an extended regular expression");
        let pattern = Pattern::new(id).map_err(|_| wrong())?;
        let mut failed = None;
        for id in self.store.ids().iter().filter(|id| pattern.matches(id)) {
            if let Err(error) = of_one(id) {
                failed.replace(error).iter().for_each(|error| self.log.error(error));
            }
        }
        failed.map_or(Ok(0), Err)
    }

    /// The configuration file of a bundle: `config.json` in it, or the file of `--config`.
    fn config_file(&self, bundle: &std::path::Path) -> Result<PathBuf> {
        self.args.path("config").map_or_else(|| Ok(bundle.join("config.json")), |given| absolute(&given))
    }

    /// The absolute path of the bundle.
    fn bundle(&self) -> Result<PathBuf> {
        absolute(&self.args.path("bundle").unwrap_or_else(|| ".".into()))
    }

    /// Supervises a process in the foreground; `None` with `--detach`.
    fn foreground(&self) -> Result<Option<Foreground>> {
        if self.args.is_on("detach") {
            return Ok(None);
        }
        if !self.args.is_on("no-subreaper") {
            let _ = process::adopt_orphans(true);
        }
        Foreground::prepare().map(Some)
    }

    /// Writes the pid file atomically: a number without a newline, as engines expect it.
    fn write_pid_file(&self, pid: i32) -> Result<()> {
        let Some(path) = self.args.path("pid-file") else { return Ok(()) };
        let mut new = path.clone().into_os_string();
        new.push(".new");
        let _ = std::fs::remove_file(&new); // an existing file or symlink is not written to
        let written = std::fs::File::create_new(&new)
            .and_then(|mut file| std::io::Write::write_all(&mut file, pid.to_string().as_bytes()))
            .and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| Error::io(Step::State, format!("pid file {}", path.display()), &error))
    }
}

/// A bundle's path, absolute and without symlinks.
fn absolute(given: &std::path::Path) -> Result<PathBuf> {
    std::fs::canonicalize(given).map_err(|error| Error::io(Step::Config, format!("bundle {}", given.display()), &error))
}

/// The version text. Engines expect the name before the word "version" in the first line, and a commit.
fn version() -> String {
    format!(
        "stockade-oci version {}\ncommit: {}\nspec: {}\n",
        env!("CARGO_PKG_VERSION"),
        option_env!("STOCKADE_COMMIT").unwrap_or("unknown"),
        crate::plan::container::OCI_VERSION
    )
}

/// Prints text and returns the exit code.
fn say(text: &str) -> u8 {
    match print(text) {
        Ok(()) => 0,
        Err(error) => {
            Log::default().error(&error);
            1
        }
    }
}

fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::io(Step::Output, "standard output", &error))
        }
        _ => Ok(()),
    }
}
