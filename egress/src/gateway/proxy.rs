//! Connections through a proxy upstream.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;
use tokio::net::TcpStream;
use tokio::time::{Instant as Deadline, timeout, timeout_at};

use super::connection::{Bad, refused, write};
use crate::proxy::{Conversation, Fault, Host, Next, Proxy};
use crate::upstream::{Resolver, Unresolved};

/// Connects to an address that was checked, through the proxy. Also returns what the host has said already. Each reason begins with
/// `upstream_proxy_`.
pub async fn connect(
    proxy: &Proxy,
    resolver: &Resolver,
    to: SocketAddr,
    deadline: Deadline,
) -> Result<(TcpStream, Vec<u8>), Bad> {
    // Handed over, it would be the proxy's own.
    if to.ip().is_loopback() {
        return refused(format!("upstream_proxy_loopback: {}", to.ip()));
    }
    let addresses = match &proxy.host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => match timeout_at(deadline, resolver.resolve(name)).await {
            Ok(Ok(addresses)) => addresses,
            Ok(Err(Unresolved::NotFound)) => return refused("upstream_proxy_not_found"),
            Ok(Err(Unresolved::NoAnswer)) | Err(_) => return refused("upstream_proxy_no_name_server"),
        },
    };
    let stream = reach(&addresses, proxy.port, deadline).await?;
    let spoken = timeout_at(deadline, converse(proxy, &stream, to)).await;
    let first = spoken.unwrap_or_else(|_| refused("upstream_proxy_timed_out"))?;
    Ok((stream, first))
}

/// The first of its addresses that answers.
async fn reach(addresses: &[IpAddr], port: u16, deadline: Deadline) -> Result<TcpStream, Bad> {
    let mut failed = "upstream_proxy_timed_out".to_owned();
    for (index, address) in addresses.iter().enumerate() {
        let left = addresses.len() - index;
        let part = deadline.saturating_duration_since(Deadline::now()) / left as u32;
        match timeout(part, TcpStream::connect(SocketAddr::new(*address, port))).await {
            Err(_) => {}
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = format!("upstream_proxy_unreachable: {}", named(&error)),
        }
    }
    refused(failed)
}

/// Returns what the host has said already.
async fn converse(proxy: &Proxy, stream: &TcpStream, to: SocketAddr) -> Result<Vec<u8>, Bad> {
    let lost = |error: io::Error| Bad::Refused(format!("upstream_proxy_lost: {}", named(&error)));
    let (mut conversation, first) = Conversation::begin(proxy, to);
    write(stream, &first).await.map_err(lost)?;
    let mut part = [0; 4096];
    loop {
        stream.readable().await.map_err(lost)?;
        let length = match stream.try_read(&mut part) {
            Ok(0) => return refused("upstream_proxy_closed"),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(lost(error)),
        };
        match conversation.hear(&part[..length]) {
            Ok(Next::Listen) => {}
            Ok(Next::Say(words)) => write(stream, &words).await.map_err(lost)?,
            Ok(Next::Connected(rest)) => return Ok(rest),
            Err(Fault::Malformed) => return refused("upstream_proxy_malformed"),
            Err(Fault::Login) => return refused("upstream_proxy_login"),
            Err(Fault::Refused(why)) => return refused(format!("upstream_proxy_refused: {why}")),
        }
    }
}

fn named(error: &io::Error) -> String {
    error.raw_os_error().map_or("io".to_owned(), |number| format!("{:?}", Errno::from_raw(number)))
}
