//! The name server inside, by UDP and TCP.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::state::State;
use crate::stub::LONGEST;

/// The most connections at a time, and how long each may take for a question.
const CONNECTIONS: u32 = 16;
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers datagrams.
pub async fn datagrams(state: Rc<State>, socket: UdpSocket) {
    let mut packet = [0; LONGEST];
    loop {
        match socket.recv_from(&mut packet).await {
            Ok((length, from)) => {
                if let Some(reply) = state.answer(&packet[..length]) {
                    let _ = socket.try_send_to(&reply, from); // a full buffer loses it, as a network would
                }
            }
            Err(_) => sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Answers connections.
pub async fn streams(state: Rc<State>, listener: TcpListener) {
    let open = Rc::new(Cell::new(0_u32));
    loop {
        match listener.accept().await {
            Ok((stream, _)) if open.get() < CONNECTIONS => {
                let (state, open) = (Rc::clone(&state), Rc::clone(&open));
                open.set(open.get() + 1);
                spawn_local(async move {
                    let _ = answer_all(&state, stream).await;
                    open.set(open.get() - 1);
                });
            }
            Ok(_) => {}
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn answer_all(state: &State, mut stream: TcpStream) -> std::io::Result<()> {
    loop {
        let mut packet = Vec::new();
        timeout(PATIENCE, async {
            let length = usize::from(stream.read_u16().await?);
            if length > LONGEST {
                return Err(std::io::ErrorKind::InvalidData.into());
            }
            packet.resize(length, 0);
            stream.read_exact(&mut packet).await
        })
        .await??;
        let Some(reply) = state.answer(&packet) else { return Ok(()) };
        let length = u16::try_from(reply.len()).unwrap_or(0);
        timeout(PATIENCE, stream.write_all(&[&length.to_be_bytes(), &reply[..]].concat())).await??;
    }
}
