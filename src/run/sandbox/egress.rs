//! Network access by name of a sandbox that stays: its gateway's events, and changes of its rules.

use std::os::fd::OwnedFd;

use nix::poll::PollFd;
use stockade_egress::change::Change;
use stockade_egress::record::Totals;
use stockade_egress::rule::Rules;

use super::Sandbox;
use crate::cgroup::Group;
use crate::error::{Error, Result, Step};
use crate::run::egress::Changing;
pub use crate::run::egress::Event;
use crate::run::egress::Gateway;

impl Sandbox {
    /// What to poll for to hear the gateway.
    pub fn gateway(&self) -> Option<PollFd<'_>> {
        self.kept.gateway.as_ref().and_then(Gateway::interest)
    }

    /// What the gateway says, if it says anything.
    pub fn gateway_event(&mut self) -> Option<Event> {
        self.kept.gateway.as_mut().and_then(Gateway::event)
    }

    /// The rules for hosts, which can be changed.
    fn changing(&self) -> Result<&Changing> {
        let changing = self.kept.gateway.as_ref().and_then(|gateway| gateway.changing.as_ref());
        let reason = || Error::new(Step::SessionRequest, "network", "the session was made without rules for hosts");
        changing.ok_or_else(|| reason().hint("make it with --allow-net RULE"))
    }

    /// Whether a change of the rules is possible.
    pub fn check_change(&self, change: &Change) -> Result<()> {
        self.changing()?.check(change)
    }

    /// Begins to change the rules. [`Event::Changed`] tells when they are in force. Returns the changed rules.
    pub fn change_rules(&mut self, change: &Change) -> Result<Rules> {
        self.changing()?;
        let changing = self.kept.gateway.as_mut().and_then(|gateway| gateway.changing.as_mut());
        changing.map_or(Ok(Rules::default()), |changing| {
            changing.change(change)?;
            Ok(changing.rules().clone())
        })
    }

    /// Writes the lines of the network log that are kept to a pipe, and if it follows, those that come.
    pub fn read_net_log(&self, pipe: OwnedFd, follow: bool) -> Result<()> {
        self.changing()?.read_log(pipe, follow)
    }

    /// Tells the gateway which cgroup a command has, before it begins.
    pub(super) fn announce(&self, command: &str, group: Option<&Group>) -> Result<()> {
        match (self.changing(), group.and_then(Group::dir)) {
            (Ok(changing), Some(directory)) => {
                let found = nix::sys::stat::fstat(directory);
                let cgroup = found.map_err(|errno| Error::errno(Step::Cgroup, "cgroup of a command", errno))?;
                changing.command(cgroup.st_ino, command)
            }
            _ => Ok(()),
        }
    }

    /// Ends the gateway, and takes its totals. `None` if there are no rules for hosts.
    pub fn end_network(&mut self) -> Result<Option<Totals>> {
        self.kept.gateway.take().map(Gateway::finish).transpose()
    }
}
