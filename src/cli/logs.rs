//! `stockade logs`: prints what the command of a session printed, also when the session has ended.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollTimeout, poll};

use super::session::{name, over};
use crate::args::Args;
use crate::error::{Error, Result, Step};
use crate::launch::pump::Pump;
use crate::launch::standard::unblocking;
use crate::session::client::{Client, refusal};
use crate::session::place::Place;
use crate::session::protocol::{Event, Operation};
use crate::session::record::Record;

/// Both output streams: those of a session that runs, or what is kept of one that has ended.
struct Log {
    streams: Vec<OwnedFd>,
    /// The session that passes them on, and the request.
    session: Option<(Client, u64)>,
}

/// Copies the log until its end, or what there is.
pub fn main(args: &Args) -> Result<u8> {
    let name = name(args);
    let log = match Log::of_running(&name, args.is_on("follow")) {
        Err(error) if error.step == Step::SessionConnect => match over(&name)? {
            Some(place) => Log::of_ended(&place)?,
            None => return Err(error),
        },
        log => log?,
    };
    let mut pumps = Vec::new();
    for (fd, number) in log.streams.into_iter().zip([1, 2]) {
        pumps.push(Pump::new(fd, unblocking(number)?, None));
    }
    copy(&mut pumps)?;
    // Otherwise the reader of this program's output has left.
    match log.session {
        Some((client, request)) if !pumps.iter().any(|pump| pump.record().truncated) => is_whole(client, request),
        _ => Ok(0),
    }
}

impl Log {
    fn of_running(name: &str, follow: bool) -> Result<Self> {
        let mut client = Client::connect(name)?;
        let request = client.send(Operation::Logs { follow, from_now: false }, Vec::new())?;
        loop {
            let Some((reply, streams)) = client.reply(true)? else { continue };
            let reply = refusal(reply)?;
            if reply.id == Some(request) && reply.event == Event::Started {
                return Ok(Self { streams, session: Some((client, request)) });
            }
        }
    }

    fn of_ended(place: &Place) -> Result<Self> {
        let lost = |reason: String| Error::new(Step::SessionConnect, &place.name, reason);
        let Some(end) = Record::of(place)?.and_then(|record| record.end) else {
            let error = lost("its supervisor was killed, and what its command printed is lost with it".to_owned());
            return Err(error.hint("`stockade gc` removes what is left"));
        };
        match end.output.map(|output| output.lost) {
            None => Err(lost("the session was made without a command, so it has no log".to_owned())),
            Some(Some(reason)) => Err(lost(format!("what its command printed could not be kept: {reason}"))),
            Some(None) => Ok(Self { streams: place.output()?.into(), session: None }),
        }
    }
}

fn copy(pumps: &mut [Pump]) -> Result<()> {
    loop {
        for pump in &mut *pumps {
            pump.take_if_ready();
            pump.give();
        }
        if pumps.iter().all(Pump::is_done) {
            let lost = pumps.iter().find_map(|pump| pump.lost);
            return lost.map_or(Ok(()), |errno| Err(Error::errno(Step::Output, "standard output", errno)));
        }
        let mut polled: Vec<PollFd<'_>> =
            pumps.iter().flat_map(|pump| pump.interests().into_iter().flatten()).collect();
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::errno(Step::Output, "poll", errno)),
        }
    }
}

/// The session says when it has passed on everything. One that ends does not wait long for a slow reader.
fn is_whole(mut client: Client, request: u64) -> Result<u8> {
    loop {
        let reply = client.reply(true).map_err(|_| {
            let error = client.wrong("the session ended before it had passed on all that its command printed");
            error.hint("`stockade logs` prints what is kept of it")
        })?;
        if reply.is_some_and(|(reply, _)| reply.id == Some(request) && reply.event != Event::Started) {
            return Ok(0);
        }
    }
}
