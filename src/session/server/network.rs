//! Network access by name of a session: changes of its rules, its log, and what its gateway says.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::fcntl::OFlag;
use stockade_egress::change::Change;

use super::Server;
use super::commands::Asked;
use super::requests::refused;
use crate::error::{Error, Result, Step};
use crate::report::{ErrorRecord, NetworkRecord, Report, Status};
use crate::run::sandbox::Event;
use crate::session::protocol::{self, Reply};
use crate::session::record::Cause;

/// Adds a change of the rules for hosts to the audit log.
type Audit<'a> = &'a dyn Fn(&Change) -> Result<()>;

/// Where a session is recorded while it runs.
pub struct Recorders<'a> {
    /// The network log.
    pub net_log: Option<OwnedFd>,
    /// The audit log.
    pub audit: Audit<'a>,
}

/// The network of a session.
pub struct Network<'a> {
    /// Who waits for changes of the rules, in their order.
    changes: VecDeque<Asked>,
    audit: Audit<'a>,
    /// Why the gateway, or its log, failed.
    error: Option<Error>,
}

impl<'a> Network<'a> {
    /// `audit` records a change before it is made.
    pub fn new(audit: Audit<'a>) -> Self {
        Self { changes: VecDeque::new(), audit, error: None }
    }
}

impl Server<'_> {
    /// Changes the rules. The answer follows when the gateway has made the change.
    pub(super) fn change_rules(&mut self, asked: Asked, change: &Change) -> Result<()> {
        if self.ending.is_some() {
            return Err(refused("session", "is ending"));
        }
        self.sandbox.check_change(change)?;
        (self.network.audit)(change)?; // a change that cannot be recorded is not made
        let rules = self.sandbox.change_rules(change)?;
        if let Some(egress) = &mut self.plan.egress {
            egress.rules = rules;
        }
        self.network.changes.push_back(asked);
        self.held.write_record(&self.record().json())
    }

    pub(super) fn read_net_log(&mut self, asked: Asked, follow: bool) -> Result<()> {
        let (reader, writer) =
            nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| Error::errno(Step::SessionRequest, "pipe", errno))?;
        self.sandbox.read_net_log(writer, follow)?;
        self.tell(Some(asked), Reply::default(), vec![reader]);
        Ok(())
    }

    /// Acts on what the gateway says.
    pub(super) fn hear_gateway(&mut self) {
        let grace = Duration::from_micros(self.plan.deadlines.kill_after_us);
        while let Some(event) = self.sandbox.gateway_event() {
            match event {
                Event::Changed => {
                    let asked = self.network.changes.pop_front();
                    self.tell(asked, Reply::default(), Vec::new());
                }
                Event::Budget => self.begin_end(Cause::NetBudget, grace),
                Event::LogFailed => self.fail_network("network log", "a line could not be written", grace),
                Event::Died => self.fail_network("gateway", "died: no connection was possible any more", grace),
            }
        }
    }

    fn fail_network(&mut self, object: &str, reason: &str, grace: Duration) {
        let error = Error::new(Step::Egress, object, reason);
        for asked in std::mem::take(&mut self.network.changes) {
            let (record, exit_code) = (ErrorRecord::from(&error), error.exit_code());
            let event = protocol::Event::Error;
            let reply = Reply { event, error: Some(record), exit_code: Some(exit_code), ..Reply::default() };
            self.tell(Some(asked), reply, Vec::new());
        }
        self.network.error.get_or_insert(error);
        self.begin_end(Cause::Failed, grace);
    }

    /// Ends the gateway, and adds the traffic of all commands to the session's report.
    pub(super) fn add_network(&mut self, cause: Cause, report: &mut Report) {
        if self.plan.egress.is_none() {
            return;
        }
        let ended = self.sandbox.end_network();
        let error = self.network.error.take().or_else(|| ended.as_ref().err().cloned());
        report.network = Some(NetworkRecord { mode: self.plan.namespaces.network, egress: ended.ok().flatten() });
        match error {
            Some(error) if report.error.is_none() => {
                (report.status, report.exit_code) = (Status::InternalError, error.exit_code());
                report.error = Some((&error).into());
            }
            None if cause == Cause::NetBudget => (report.status, report.exit_code) = (Status::NetBudget, 124),
            _ => {}
        }
    }
}
