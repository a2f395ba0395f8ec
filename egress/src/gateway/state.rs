//! What all connections share: rules, names, bounds, totals and the log.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;
use tokio::time::timeout;

use super::meter::Meter;
use super::{Limits, told};
use crate::layout::Layout;
use crate::record::{Event, Line, Outcome, Refusal, RuleTotals, SCHEMA, Totals};
use crate::rule::Rules;
use crate::stub::{Asked, Names};
use crate::upstream::Resolver;

/// The most refusals that are listed, so that the workload cannot fill our memory.
const LISTED: usize = 256;

/// A host, a port and a reason.
type Refused = (String, Option<u16>, String);

/// The state of the gateway.
pub struct State {
    id: String,
    /// The rules.
    pub rules: Rules,
    /// The names of the sandbox.
    pub names: RefCell<Names>,
    /// Resolves them.
    pub resolver: Resolver,
    /// The bounds.
    pub limits: Limits,
    /// Rate and budget.
    pub meter: Meter,
    totals: RefCell<Totals>,
    /// The place in the list of each refusal.
    listed: RefCell<HashMap<Refused, usize>>,
    log: RefCell<Option<File>>,
    supervisor: UnixStream,
    told_budget: Cell<bool>,
    open: watch::Sender<u32>,
    ending: watch::Sender<bool>,
}

/// An event, for the log.
pub struct Happened<'a> {
    /// What it was.
    pub event: Event,
    /// When it began.
    pub at: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// The name or, without one, the address that it is about.
    pub name: Option<&'a str>,
    /// The number of the rule that allowed it.
    pub rule: Option<usize>,
    /// The address.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: Option<u16>,
    /// The server name of TLS.
    pub server_name: Option<&'a str>,
    /// Bytes from the workload and to it.
    pub bytes: (u64, u64),
    /// How it ended.
    pub result: Outcome,
    /// Why.
    pub reason: Option<String>,
}

impl State {
    /// The state at the beginning.
    pub fn new(
        id: String,
        rules: Rules,
        layout: &Layout,
        resolver: Resolver,
        limits: Limits,
        log: Option<File>,
        supervisor: UnixStream,
    ) -> Self {
        let rule = |rule: &crate::rule::Rule| RuleTotals { rule: rule.to_string(), ..RuleTotals::default() };
        let totals = Totals { rules: rules.allow.iter().map(rule).collect(), ..Totals::default() };
        Self {
            id,
            rules,
            names: RefCell::new(Names::new(layout)),
            resolver,
            limits,
            meter: Meter::new(limits.rate, limits.budget),
            totals: RefCell::new(totals),
            listed: RefCell::default(),
            log: RefCell::new(log),
            supervisor,
            told_budget: Cell::new(false),
            open: watch::channel(0).0,
            ending: watch::channel(false).0,
        }
    }

    /// The totals so far.
    pub fn totals(&self) -> Totals {
        self.totals.borrow().clone()
    }

    /// Answers a question of the workload.
    pub fn answer(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let (reply, asked) = self.names.borrow_mut().answer(packet, &self.rules, Instant::now());
        let (name, reason) = match &asked {
            Asked::Answered => return reply,
            Asked::Refused(name) => (name.as_str(), "no_rule"),
            Asked::Full(name) => (name.as_str(), "too_many_names"),
        };
        if self.refuse(name, None, reason) {
            self.write(Happened {
                event: Event::Name,
                at: SystemTime::now(),
                took: Duration::ZERO,
                name: Some(name),
                rule: None,
                address: None,
                port: None,
                server_name: None,
                bytes: (0, 0),
                result: Outcome::Refused,
                reason: Some(reason.to_owned()),
            });
        }
        reply
    }

    /// Counts a refusal. Returns whether it is the first of its kind, and is listed.
    pub fn refuse(&self, host: &str, port: Option<u16>, reason: &str) -> bool {
        let mut totals = self.totals.borrow_mut();
        totals.refused += 1;
        let mut listed = self.listed.borrow_mut();
        let key = (host.to_owned(), port, reason.to_owned());
        if let Some(index) = listed.get(&key) {
            totals.refusals[*index].count += 1;
            return false;
        }
        if listed.len() >= LISTED {
            totals.refusals_unlisted += 1;
            return false;
        }
        listed.insert(key, totals.refusals.len());
        totals.refusals.push(Refusal { host: host.to_owned(), port, reason: reason.to_owned(), count: 1 });
        true
    }

    /// Counts a connection whose rule was found, with its bytes.
    pub fn count(&self, rule: usize, bytes: (u64, u64)) {
        let mut totals = self.totals.borrow_mut();
        totals.connections += 1;
        totals.bytes_sent += bytes.0;
        totals.bytes_received += bytes.1;
        if let Some(rule) = totals.rules.get_mut(rule) {
            rule.connections += 1;
            rule.bytes_sent += bytes.0;
            rule.bytes_received += bytes.1;
        }
    }

    /// Whether connections may be opened. Without its log the gateway opens none.
    pub fn may_open(&self) -> Result<(), &'static str> {
        match () {
            () if *self.ending.borrow() => Err("ended"),
            () if *self.open.borrow() >= self.limits.connections => Err("too_many_connections"),
            () if self.meter.is_used_up() => Err("budget"),
            () => Ok(()),
        }
    }

    /// Counts an open connection, until what is returned is dropped.
    pub fn open(&self) -> Open<'_> {
        self.open.send_modify(|open| *open += 1);
        Open(&self.open)
    }

    /// Tells the supervisor that the budget is used up.
    pub fn tell_budget(&self) {
        if !self.told_budget.replace(true) {
            let _ = (&self.supervisor).write(&[told::BUDGET]);
        }
    }

    /// Ends every connection, at the latest after `grace`.
    pub async fn end(&self, grace: Duration) {
        self.ending.send_replace(true);
        let mut open = self.open.subscribe();
        let _ = timeout(2 * grace, open.wait_for(|open| *open == 0)).await;
    }

    /// Returns when the workload has ended.
    pub async fn ending(&self) {
        let _ = self.ending.subscribe().wait_for(|ending| *ending).await;
    }

    /// Writes a line to the log, if there is one.
    pub fn write(&self, happened: Happened<'_>) {
        let mut log = self.log.borrow_mut();
        let Some(file) = log.as_mut() else { return };
        let line = Line {
            schema: SCHEMA.to_owned(),
            time: humantime::format_rfc3339_micros(happened.at).to_string(),
            id: self.id.clone(),
            event: happened.event,
            name: happened.name.map(str::to_owned),
            rule: happened.rule.and_then(|rule| self.rules.allow.get(rule)).map(ToString::to_string),
            address: happened.address,
            port: happened.port,
            server_name: happened.server_name.map(str::to_owned),
            bytes_sent: happened.bytes.0,
            bytes_received: happened.bytes.1,
            duration_us: u64::try_from(happened.took.as_micros()).unwrap_or(u64::MAX),
            result: happened.result,
            reason: happened.reason,
        };
        let written = serde_json::to_vec(&line).map_err(std::io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            file.write_all(&text) // in one call, so that lines of several runs do not mix
        });
        if written.is_err() {
            let _ = (&self.supervisor).write(&[told::LOG]);
        }
    }
}

/// An open connection.
pub struct Open<'a>(&'a watch::Sender<u32>);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}
