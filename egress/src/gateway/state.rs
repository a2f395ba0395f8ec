//! What all connections share: rules, names, bounds, totals and the log.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::log::Log;
use super::meter::Meter;
use super::owner::Owners;
use super::{Config, Limits, Traffic, told};
use crate::change::Change;
use crate::layout::{Layout, Socket};
use crate::proxy::Proxy;
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
    /// The rules, and what follows from them.
    pub rules: RefCell<Rules>,
    layout: RefCell<Layout>,
    /// The number of changes of the rules.
    changes: watch::Sender<u64>,
    /// The names of the sandbox.
    pub names: RefCell<Names>,
    /// Resolves them.
    pub resolver: Resolver,
    /// The proxy that every connection to a host goes through.
    pub proxy: Option<Proxy>,
    /// The bounds.
    pub limits: Limits,
    /// Rate and budget.
    pub meter: Meter,
    /// What other processes may read of it.
    pub traffic: Traffic,
    totals: RefCell<Totals>,
    /// The place in the list of each refusal.
    listed: RefCell<HashMap<Refused, usize>>,
    /// The network log.
    pub log: Log,
    /// The commands of a session; a run has one.
    pub owners: Option<Owners>,
    /// Sockets of the sandbox's network, for published ports.
    connectors: RefCell<Vec<OwnedFd>>,
    asked_for_more: Cell<bool>,
    more_connectors: Notify,
    supervisor: UnixStream,
    told_budget: Cell<bool>,
    open: watch::Sender<u32>,
    ending: watch::Sender<bool>,
}

/// An event, for the log.
pub struct Happened<'a> {
    /// The command that it belongs to, if that is known for certain.
    pub command: Option<String>,
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
    pub fn new(config: Config, log: Log, owners: Option<Owners>, supervisor: UnixStream) -> Self {
        let Config { id, rules, layout, hosts, servers, proxy, limits, traffic, .. } = config;
        let mut totals = Totals::default();
        list(&mut totals, &rules);
        Self {
            id,
            rules: RefCell::new(rules),
            names: RefCell::new(Names::new(&layout)),
            layout: RefCell::new(layout),
            changes: watch::channel(0).0,
            resolver: Resolver::new(hosts, servers),
            proxy,
            limits,
            meter: Meter::new(limits.rate, limits.budget),
            traffic,
            totals: RefCell::new(totals),
            listed: RefCell::default(),
            log,
            owners,
            connectors: RefCell::default(),
            asked_for_more: Cell::new(false),
            more_connectors: Notify::new(),
            supervisor,
            told_budget: Cell::new(false),
            open: watch::channel(0).0,
            ending: watch::channel(false).0,
        }
    }

    /// Changes the rules. Returns the sockets that this needs, in the order in which they come.
    pub fn change(&self, change: &Change) -> Result<Vec<Socket>, String> {
        let rules = change.apply(&self.rules.borrow())?;
        let (_, sockets) = self.layout.borrow_mut().grow(&rules)?;
        self.names.borrow_mut().grow(&self.layout.borrow());
        list(&mut self.totals.borrow_mut(), &rules);
        *self.rules.borrow_mut() = rules;
        self.changes.send_modify(|changes| *changes += 1);
        Ok(sockets)
    }

    /// Returns when the rules have changed so that this does not hold any more.
    pub async fn unless(&self, holds: impl Fn(&Rules) -> bool) {
        let _ = self.changes.subscribe().wait_for(|_| !holds(&self.rules.borrow())).await;
    }

    /// The command with this cgroup; the only one of a run.
    pub fn command(&self, cgroup: Option<u64>) -> Option<String> {
        match &self.owners {
            None => Some("main".to_owned()),
            Some(owners) => owners.command(cgroup?),
        }
    }

    /// The totals so far.
    pub fn totals(&self) -> Totals {
        self.totals.borrow().clone()
    }

    /// Answers a question of the workload.
    pub fn answer(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let (reply, asked) = self.names.borrow_mut().answer(packet, &self.rules.borrow(), Instant::now());
        let (name, reason) = match &asked {
            Asked::Answered => return reply,
            Asked::Refused(name) => (name.as_str(), "no_rule"),
            Asked::Full(name) => (name.as_str(), "too_many_names"),
        };
        if self.refuse(name, None, reason) {
            self.write(Happened {
                command: self.command(None),
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

    /// Counts a connection to a published port.
    pub fn count_published(&self, bytes: (u64, u64)) {
        let mut totals = self.totals.borrow_mut();
        totals.published += 1;
        totals.bytes_sent += bytes.0;
        totals.bytes_received += bytes.1;
    }

    /// Adds sockets for published ports.
    pub fn add_connectors(&self, sockets: Vec<OwnedFd>) {
        self.asked_for_more.set(false);
        if !sockets.is_empty() {
            self.connectors.borrow_mut().extend(sockets);
            self.more_connectors.notify_waiters();
        }
    }

    /// A socket for a published port. When only a few are left, the supervisor makes more.
    pub async fn connector(&self, few: usize) -> OwnedFd {
        loop {
            let more = self.more_connectors.notified();
            let (socket, left) = {
                let mut connectors = self.connectors.borrow_mut();
                (connectors.pop(), connectors.len())
            };
            if left < few && !self.asked_for_more.replace(true) {
                let _ = (&self.supervisor).write(&[told::SOCKETS]);
            }
            match socket {
                Some(socket) => return socket,
                None => more.await,
            }
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
        let open = Open(self);
        open.change(|open| open + 1);
        open
    }

    /// Tells the supervisor that the budget is used up.
    pub fn tell_budget(&self) {
        if !self.told_budget.replace(true) {
            let _ = (&self.supervisor).write(&[told::BUDGET]);
        }
    }

    /// Ends every connection, at the latest after `grace`, and then the log.
    pub async fn end(&self, grace: Duration) {
        self.ending.send_replace(true);
        let mut open = self.open.subscribe();
        let _ = timeout(2 * grace, open.wait_for(|open| *open == 0)).await;
        let (lost, failed) = self.log.finish(grace).await;
        self.totals.borrow_mut().log_lines_lost = lost;
        if failed {
            let _ = (&self.supervisor).write(&[told::LOG]);
        }
    }

    /// Returns when the workload has ended.
    pub async fn ending(&self) {
        let _ = self.ending.subscribe().wait_for(|ending| *ending).await;
    }

    /// Tells the supervisor that the rules are changed.
    pub fn tell_change(&self) {
        let _ = (&self.supervisor).write(&[told::CHANGED]);
    }

    /// Writes a line to the log, if there is one.
    pub fn write(&self, happened: Happened<'_>) {
        if !self.log.is_wanted() {
            return;
        }
        let rules = self.rules.borrow();
        let line = Line {
            schema: SCHEMA.to_owned(),
            time: humantime::format_rfc3339_micros(happened.at).to_string(),
            id: self.id.clone(),
            command: happened.command,
            event: happened.event,
            name: happened.name.map(str::to_owned),
            rule: happened.rule.and_then(|rule| rules.allow.get(rule)).map(ToString::to_string),
            address: happened.address,
            port: happened.port,
            server_name: happened.server_name.map(str::to_owned),
            bytes_sent: happened.bytes.0,
            bytes_received: happened.bytes.1,
            duration_us: u64::try_from(happened.took.as_micros()).unwrap_or(u64::MAX),
            result: happened.result,
            reason: happened.reason,
            lost: 0,
        };
        if !self.log.add(line) {
            let _ = (&self.supervisor).write(&[told::LOG]);
        }
    }
}

/// Adds the allowing rules that have no totals yet.
fn list(totals: &mut Totals, rules: &Rules) {
    let new = rules.allow.iter().skip(totals.rules.len());
    let totals_of = |rule: &crate::rule::Rule| RuleTotals { rule: rule.to_string(), ..RuleTotals::default() };
    totals.rules.extend(new.map(totals_of));
}

/// An open connection.
pub struct Open<'a>(&'a State);

impl Open<'_> {
    fn change(&self, change: impl FnOnce(u32) -> u32) {
        self.0.open.send_modify(|open| {
            *open = change(*open);
            self.0.traffic.set_open(*open);
        });
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.change(|open| open - 1);
    }
}
