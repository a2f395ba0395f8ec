//! `stockade logs`: prints what the command of a session printed.

use nix::errno::Errno;
use nix::poll::{PollFd, PollTimeout, poll};

use super::session::name;
use crate::args::Args;
use crate::error::{Error, Result, Step};
use crate::launch::pump::Pump;
use crate::launch::standard::unblocking;
use crate::session::client::{Client, refusal};
use crate::session::protocol::{Event, Operation};

/// Copies the log until the session has passed on all of it.
pub fn main(args: &Args) -> Result<u8> {
    let mut client = Client::connect(&name(args))?;
    let request = client.send(Operation::Logs { follow: args.is_on("follow"), from_now: false }, Vec::new())?;
    let mut pumps: Vec<Pump> = Vec::new();
    loop {
        // When the pipes are here, they have everything, also if the session ends meanwhile.
        while pumps.is_empty() {
            let Some((reply, fds)) = client.reply(true)? else { continue };
            let reply = refusal(reply)?;
            if reply.id == Some(request) && reply.event == Event::Started {
                for (fd, number) in fds.into_iter().zip([1, 2]) {
                    pumps.push(Pump::new(fd, unblocking(number)?, None));
                }
            }
        }
        for pump in &mut pumps {
            pump.take_if_ready();
            pump.give();
        }
        if pumps.iter().all(Pump::is_done) {
            return match pumps.iter().find_map(|pump| pump.lost) {
                Some(errno) => Err(Error::errno(Step::Output, "standard output", errno)),
                None => Ok(0),
            };
        }
        let mut polled: Vec<PollFd<'_>> =
            pumps.iter().flat_map(|pump| pump.interests().into_iter().flatten()).collect();
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::errno(Step::Output, "poll", errno)),
        }
    }
}
