//! A session and a client of it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stockade::session::client::Client;
use stockade::session::protocol::{Event, Operation, Run};

use super::programs::STOCKADE;

/// A session, removed on drop.
pub struct Session {
    /// Its name.
    pub name: String,
}

/// A connection to it.
pub struct Connection(Client);

impl Session {
    /// Makes a session without a command.
    pub fn make(name: &str) -> Result<Self, String> {
        let mut command = Command::new(STOCKADE.as_str());
        command.args(["run", "-d", "--name", name]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.status() {
            Ok(status) if status.success() => Ok(Self { name: name.to_owned() }),
            failed => Err(format!("session {name}: {failed:?}")),
        }
    }

    /// Connects.
    pub fn connect(&self) -> Result<Connection, String> {
        Client::connect(&self.name).map(Connection).map_err(|error| error.to_string())
    }

    /// The ids of its supervisor and its init on the host.
    pub fn processes(&self) -> Result<[i32; 2], String> {
        let reply = self.connect()?.0.ask(Operation::Status).map_err(|error| error.to_string())?;
        let status = reply.status.ok_or("no status")?;
        let status: serde_json::Value = serde_json::from_str(status.get()).map_err(|error| error.to_string())?;
        let supervisor = status["pid"].as_i64().ok_or("no pid")? as i32;
        let children = std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
        let init = children.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
        Ok([supervisor, init.ok_or("no init")?])
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut command = Command::new(STOCKADE.as_str());
        let _ = command.args(["rm", "-f", &self.name]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

impl Connection {
    /// Runs a command to its end.
    pub fn command(&mut self, argv: &[&str]) -> Result<Duration, String> {
        let failed = |error: stockade::error::Error| error.to_string();
        let null = || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
        let streams = [null(), null(), null()].into_iter().collect::<Result<Vec<_>, _>>();
        let streams = streams.map_err(|error| error.to_string())?;
        let argv = argv.iter().map(|word| (*word).into()).collect();
        let begun = Instant::now();
        let id = self.0.send(Operation::Run(Box::new(Run { argv, ..Run::default() })), streams).map_err(failed)?;
        loop {
            let Some((reply, _)) = self.0.reply(true).map_err(failed)? else { return Err("no reply".to_owned()) };
            match reply.event {
                _ if reply.id != Some(id) => {}
                Event::Started => {}
                Event::Done if reply.error.is_none() => return Ok(begun.elapsed()),
                _ => return Err(format!("{:?}", reply.error)),
            }
        }
    }
}
