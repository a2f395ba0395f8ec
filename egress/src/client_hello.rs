//! The server name in the first message of TLS.

use tls_parser::{
    SNIType, TlsExtension, TlsMessage, TlsMessageHandshake, TlsRecordType, parse_tls_client_hello_extensions,
    parse_tls_message_handshake, parse_tls_record_header,
};

/// The most bytes of records that a ClientHello may take. Those of today have less than 3 KiB, also with post-quantum keys.
pub const LONGEST: usize = 32 << 10;

/// The length of a record's header.
const HEADER: usize = 5;

/// The type of the message.
const CLIENT_HELLO: u8 = 1;

/// The longest record, RFC 8446.
const LONGEST_RECORD: usize = (1 << 14) + 256;

/// What the first bytes of a client are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// More bytes are needed to tell.
    Incomplete,
    /// Another protocol.
    NotTls,
    /// TLS that cannot be read, or is longer than allowed.
    Malformed,
    /// TLS: the server name, if it has one.
    Tls(Option<Vec<u8>>),
}

/// Reads the beginning of what a client sends. Its records may be cut anywhere.
pub fn read(bytes: &[u8]) -> Hello {
    match bytes.first() {
        None => return Hello::Incomplete,
        Some(22) => {} // a record of the handshake
        Some(_) => return Hello::NotTls,
    }
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Hello::Malformed;
        }
        if message.len() >= 4 && message.len() >= 4 + length(&message) {
            return match parse_tls_message_handshake(&message) {
                Ok((_, TlsMessage::Handshake(TlsMessageHandshake::ClientHello(hello)))) => server_name(hello.ext),
                _ => Hello::Malformed,
            };
        }
        match record(rest) {
            Some(Ok((data, after))) => {
                message.extend_from_slice(data);
                rest = after;
            }
            Some(Err(())) => return Hello::Malformed,
            None if bytes.len() < LONGEST => return Hello::Incomplete,
            None => return Hello::Malformed,
        }
    }
}

/// The length that a message of the handshake announces.
fn length(message: &[u8]) -> usize {
    usize::from(message[1]) << 16 | usize::from(message[2]) << 8 | usize::from(message[3])
}

/// A record's content, and what follows it.
type Parts<'a> = (&'a [u8], &'a [u8]);

/// The next record. `None` if it is not complete.
fn record(bytes: &[u8]) -> Option<Result<Parts<'_>, ()>> {
    let header = bytes.get(..HEADER)?;
    let Ok((_, header)) = parse_tls_record_header(header) else { return Some(Err(())) };
    let length = usize::from(header.len);
    // Version 3.x; an empty record of the handshake is forbidden.
    if header.record_type != TlsRecordType::Handshake
        || header.version.0 >> 8 != 3
        || !(1..=LONGEST_RECORD).contains(&length)
    {
        return Some(Err(()));
    }
    let data = bytes.get(HEADER..HEADER + length)?;
    Some(Ok((data, &bytes[HEADER + length..])))
}

fn server_name(extensions: Option<&[u8]>) -> Hello {
    let Some(extensions) = extensions else { return Hello::Tls(None) };
    let Ok((rest, extensions)) = parse_tls_client_hello_extensions(extensions) else { return Hello::Malformed };
    if !rest.is_empty() {
        return Hello::Malformed; // a server could read on where we stopped
    }
    let mut names = extensions.iter().filter_map(|extension| match extension {
        TlsExtension::SNI(names) => Some(names),
        _ => None,
    });
    match (names.next().map(Vec::as_slice), names.next()) {
        (None, _) => Hello::Tls(None),
        (Some([(SNIType::HostName, name)]), None) => Hello::Tls(Some(name.to_vec())),
        _ => Hello::Malformed, // several names: a server could take another than we do
    }
}

#[cfg(test)]
#[path = "client_hello_tests.rs"]
mod tests;
