//! Ports of the host that lead into the sandbox. A socket of the sandbox's network is connected for each connection that comes.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::connection::{Bad, at_once, within_budget};
use super::pump::{Pump, Shared, idle};
use super::state::{Happened, State};
use super::traffic::Count;
use crate::record::{Event, Outcome};

/// When fewer sockets are left than this, more are asked for.
const FEW: usize = 16;

/// Accepts the connections to a port of the host.
pub async fn accept(state: Rc<State>, listener: TcpListener, port: u16) {
    loop {
        match listener.accept().await {
            Ok((client, from)) => drop(spawn_local(serve(Rc::clone(&state), client, from, port))),
            Err(_) => sleep(Duration::from_millis(10)).await, // no descriptor is free
        }
    }
}

async fn serve(state: Rc<State>, client: TcpStream, from: SocketAddr, port: u16) {
    let (at, begun) = (SystemTime::now(), Instant::now());
    let (sent, received) = (state.traffic.sent(), state.traffic.received());
    let ended = match state.may_open() {
        Err(reason) => Err(Bad::Refused(reason.to_owned())),
        Ok(()) => {
            let _open = state.open();
            relay(&state, &client, port, (&sent, &received)).await
        }
    };
    let (result, reason) = match ended {
        Ok(()) => (Outcome::Closed, None),
        Err(Bad::Failed(reason)) => (Outcome::Failed, Some(reason)),
        Err(Bad::Refused(reason)) => (Outcome::Refused, Some(reason)),
    };
    if result != Outcome::Closed {
        let _ = setsockopt(&client.as_fd(), sockopt::Linger, &at_once());
    }
    let bytes = (sent.get(), received.get());
    state.count_published(bytes);
    state.write(Happened {
        command: state.command(None),
        event: Event::Published,
        at,
        took: begun.elapsed(),
        name: None,
        rule: None,
        address: Some(from.ip().to_canonical()),
        port: Some(port),
        server_name: None,
        bytes,
        result,
        reason,
    });
}

async fn relay(state: &State, client: &TcpStream, port: u16, (sent, received): (&Count, &Count)) -> Result<(), Bad> {
    let inside = timeout(state.limits.connect, async { connect(state.connector(FEW).await, port).await }).await;
    let inside = inside.map_err(|_| Bad::Failed("timed_out".to_owned()))??;
    let _ = (client.set_nodelay(true), inside.set_nodelay(true));
    let shared = Shared { moved: Cell::new(Instant::now()) };
    let meter = &state.meter;
    let into = Pump { from: client, to: &inside, bytes: received, shared: &shared, meter };
    let out = Pump { from: &inside, to: client, bytes: sent, shared: &shared, meter };
    let both = async {
        tokio::try_join!(async { within_budget(into.run().await?) }, async { within_budget(out.run().await?) })
            .map(drop)
    };
    let ended = tokio::select! {
        ended = both => ended,
        () = idle(&shared, state.limits.idle) => Err(Bad::Failed("idle".to_owned())),
        () = state.ending() => Err(Bad::Failed("ended".to_owned())),
    };
    if state.meter.is_used_up() {
        state.tell_budget();
    }
    ended
}

/// Connects a socket that was made in the sandbox's network to a port of its loopback address.
async fn connect(socket: OwnedFd, port: u16) -> std::io::Result<TcpStream> {
    let socket = std::net::TcpStream::from(socket);
    socket.set_nonblocking(true)?;
    TcpSocket::from_std_stream(socket).connect((Ipv4Addr::LOCALHOST, port).into()).await
}
