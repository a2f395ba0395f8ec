//! The verbs about the network of a session: `net allow`, `net deny`, `net log`.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};

use super::session::name;
use crate::args::Args;
use crate::error::{Error, Result, Step};
use crate::session::client::{Client, refusal};
use crate::session::protocol::Operation;

/// Changes the rules.
pub fn change(args: &Args, allow: bool) -> Result<u8> {
    let text = args.words.get(1).map(|word| word.to_string_lossy()).unwrap_or_default();
    let wrong = |reason: String| Error::new(Step::Usage, "RULE", reason);
    if text.starts_with('@') {
        return Err(wrong("a file of rules can be named only when the session is made".to_owned()));
    }
    let rule = text.parse().map_err(wrong)?;
    let operation = if allow { Operation::AllowNet { rule } } else { Operation::DenyNet { rule } };
    Client::connect(&name(args))?.ask(operation).map(|_| 0)
}

/// Prints the network log.
pub fn log(args: &Args) -> Result<u8> {
    let mut client = Client::connect(&name(args))?;
    let request = client.send(Operation::NetLog { follow: args.is_on("follow") }, Vec::new())?;
    let mut pipe = loop {
        let Some((reply, fds)) = client.reply(true)? else { continue };
        let reply = refusal(reply)?;
        if let (true, Some(pipe)) = (reply.id == Some(request), fds.into_iter().next()) {
            break File::from(pipe);
        }
    };
    let (mut part, mut out) = ([0; 64 << 10], std::io::stdout().lock());
    loop {
        let length = pipe.read(&mut part).map_err(|error| Error::io(Step::SessionConnect, "network log", &error))?;
        if length == 0 {
            return Ok(0);
        }
        match out.write_all(&part[..length]).and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(0),
            written => written.map_err(|error| Error::io(Step::Output, "standard output", &error))?,
        }
    }
}
