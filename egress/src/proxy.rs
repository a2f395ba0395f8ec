//! A proxy that stands between the gateway and the hosts: how it is named, and what is said to it and read from it.
//!
//! HTTP: `CONNECT` of RFC 9110, with the `Basic` scheme. SOCKS: RFC 1928, with the user name and password of RFC 1929.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use data_encoding::BASE64;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use url::{Host as UrlHost, Url};

use crate::name::Name;

/// The most bytes of an answer: the head of HTTP.
pub const LONGEST: usize = 16 << 10;

/// The most header fields of an answer.
const FIELDS: usize = 100;

/// The port of SOCKS, if none is named.
const SOCKS_PORT: u16 = 1080;

/// The method without a login, that with one, and "none of these".
const OPEN: u8 = 0;
const LOGIN: u8 = 2;
const NO_METHOD: u8 = 0xff;

/// A proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Proxy {
    /// What it speaks.
    pub protocol: Protocol,
    /// Where it is.
    pub host: Host,
    /// Its TCP port.
    pub port: u16,
    login: Option<Login>,
}

/// What a proxy speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP.
    Http,
    /// SOCKS, version 5.
    Socks5,
}

/// Where a proxy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A name, which is resolved for each connection.
    Name(Name),
    /// An address.
    Address(IpAddr),
}

#[derive(Clone, PartialEq, Eq)]
struct Login {
    user: Vec<u8>,
    password: Vec<u8>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login") // never the password
    }
}

/// From a URL. No error repeats its text, which may have a password.
impl FromStr for Proxy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| format!("not a URL of a proxy: {error}"))?;
        let (protocol, known_port) = match url.scheme() {
            "http" => (Protocol::Http, 80),
            "socks5" => (Protocol::Socks5, SOCKS_PORT),
            other => return Err(format!("{other} is not a protocol of proxies: http and socks5 are")),
        };
        let host = match url.host() {
            None => return Err("the URL names no host".to_owned()),
            Some(UrlHost::Ipv4(address)) => Host::Address(address.into()),
            Some(UrlHost::Ipv6(address)) => Host::Address(address.into()),
            Some(UrlHost::Domain(name)) => name.parse().map(Host::Address).or_else(|_| name.parse().map(Host::Name))?,
        };
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err("the URL of a proxy ends with its port".to_owned());
        }
        let port = url.port().unwrap_or(known_port);
        if port == 0 {
            return Err("0 is not a port".to_owned());
        }
        let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
        let login = match (url.username(), url.password()) {
            ("", None) => None,
            (user, password) => {
                Some(Login { user: decoded(user), password: decoded(password.unwrap_or_default()) }.checked()?)
            }
        };
        Ok(Self { protocol, host, port, login })
    }
}

impl Login {
    /// Both fit both protocols.
    fn checked(self) -> Result<Self, String> {
        if self.user.is_empty() || self.user.len() > 255 || self.password.len() > 255 {
            return Err("a user name has 1 to 255 bytes, and a password at most 255".to_owned());
        }
        if self.user.contains(&b':') {
            return Err("a user name has no colon".to_owned());
        }
        Ok(self)
    }
}

/// As a URL without the password.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.protocol {
            Protocol::Http => "http://",
            Protocol::Socks5 => "socks5://",
        })?;
        if let Some(login) = &self.login {
            write!(f, "{}@", percent_encoding::percent_encode(&login.user, percent_encoding::NON_ALPHANUMERIC))?;
        }
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Address(address) => write!(f, "{}", SocketAddr::new(*address, self.port)),
        }
    }
}

impl TryFrom<String> for Proxy {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Proxy> for String {
    fn from(proxy: Proxy) -> Self {
        proxy.to_string()
    }
}

/// Why a proxy makes no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its answer cannot be read, or is longer than allowed.
    Malformed,
    /// It wants another login, or one at all.
    Login,
    /// It refuses this host, or cannot reach it.
    Refused(String),
}

/// What comes next in a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// More has to be heard.
    Listen,
    /// This has to be said.
    Say(Vec<u8>),
    /// The connection is made. These bytes are the host's already.
    Connected(Vec<u8>),
}

/// A conversation with a proxy about one connection.
#[derive(Debug)]
pub struct Conversation<'a> {
    proxy: &'a Proxy,
    to: SocketAddr,
    stage: Stage,
    heard: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Http,
    Method,
    Login,
    Reply,
}

/// The length and the meaning of what was read.
type Read<T> = Result<Option<(usize, T)>, Fault>;

impl<'a> Conversation<'a> {
    /// Asks for a connection to this address. Returns the first words.
    pub fn begin(proxy: &'a Proxy, to: SocketAddr) -> (Self, Vec<u8>) {
        let (stage, words) = match (proxy.protocol, &proxy.login) {
            (Protocol::Http, login) => (Stage::Http, connect(to, login.as_ref())),
            (Protocol::Socks5, None) => (Stage::Method, vec![5, 1, OPEN]),
            (Protocol::Socks5, Some(_)) => (Stage::Method, vec![5, 2, OPEN, LOGIN]),
        };
        (Self { proxy, to, stage, heard: Vec::new() }, words)
    }

    /// Takes what the proxy says. It may be cut anywhere.
    pub fn hear(&mut self, bytes: &[u8]) -> Result<Next, Fault> {
        self.heard.extend_from_slice(bytes);
        match self.stage {
            Stage::Http => self.last(http_head),
            Stage::Reply => self.last(socks_reply),
            Stage::Method => match (self.heard.as_slice(), &self.proxy.login) {
                ([], _) | ([5], _) => Ok(Next::Listen),
                ([5, OPEN], _) => Ok(self.say(Stage::Reply, request(self.to))),
                ([5, LOGIN], Some(login)) => Ok(self.say(Stage::Login, sub_negotiation(login))),
                ([5, NO_METHOD], _) => Err(Fault::Login),
                _ => Err(Fault::Malformed),
            },
            Stage::Login => match self.heard.as_slice() {
                [] | [1] => Ok(Next::Listen),
                [1, 0] => Ok(self.say(Stage::Reply, request(self.to))),
                [1, _] => Err(Fault::Login),
                _ => Err(Fault::Malformed),
            },
        }
    }

    fn say(&mut self, stage: Stage, words: Vec<u8>) -> Next {
        self.stage = stage;
        self.heard.clear();
        Next::Say(words)
    }

    /// The last answer, behind which the host's own bytes begin.
    fn last(&mut self, read: fn(&[u8]) -> Read<()>) -> Result<Next, Fault> {
        match read(&self.heard)? {
            Some((length, ())) => Ok(Next::Connected(self.heard.split_off(length))),
            None if self.heard.len() < LONGEST => Ok(Next::Listen),
            None => Err(Fault::Malformed),
        }
    }
}

/// The request of HTTP.
fn connect(to: SocketAddr, login: Option<&Login>) -> Vec<u8> {
    let credentials = login.map(|login| BASE64.encode(&[&login.user[..], b":", &login.password].concat()));
    let credentials = credentials.map(|text| format!("Proxy-Authorization: Basic {text}\r\n")).unwrap_or_default();
    format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{credentials}\r\n").into_bytes()
}

fn http_head(bytes: &[u8]) -> Read<()> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut head = httparse::Response::new(&mut fields);
    match head.parse(&bytes[..bytes.len().min(LONGEST)]) {
        Err(_) => Err(Fault::Malformed),
        Ok(httparse::Status::Partial) => Ok(None),
        Ok(httparse::Status::Complete(length)) => match head.code {
            Some(200..=299) => Ok(Some((length, ()))),
            Some(407) => Err(Fault::Login),
            Some(code @ 300..=599) => Err(Fault::Refused(code.to_string())),
            _ => Err(Fault::Malformed),
        },
    }
}

/// The request of SOCKS.
fn request(to: SocketAddr) -> Vec<u8> {
    let mut words = vec![5, 1, 0];
    match to.ip() {
        IpAddr::V4(address) => {
            words.push(1);
            words.extend(address.octets());
        }
        IpAddr::V6(address) => {
            words.push(4);
            words.extend(address.octets());
        }
    }
    words.extend(to.port().to_be_bytes());
    words
}

/// The login of SOCKS. The lengths were checked.
fn sub_negotiation(login: &Login) -> Vec<u8> {
    let part = |bytes: &[u8]| [&[bytes.len() as u8][..], bytes].concat();
    [&[1][..], &part(&login.user), &part(&login.password)].concat()
}

fn socks_reply(bytes: &[u8]) -> Read<()> {
    let expected = |at: usize, byte: u8| bytes.get(at).is_none_or(|found| *found == byte);
    if !expected(0, 5) || !expected(2, 0) {
        return Err(Fault::Malformed);
    }
    let Some(code) = bytes.get(1) else { return Ok(None) };
    if *code != 0 {
        // Some proxies send no address with an error.
        return Err(Fault::Refused(socks_error(*code)));
    }
    let length = match (bytes.get(3), bytes.get(4)) {
        (None, _) | (Some(3), None) => return Ok(None),
        (Some(1), _) => 4,
        (Some(4), _) => 16,
        (Some(3), Some(length)) => 1 + usize::from(*length),
        _ => return Err(Fault::Malformed),
    };
    let whole = 4 + length + 2;
    Ok((bytes.len() >= whole).then_some((whole, ())))
}

fn socks_error(code: u8) -> String {
    let known = match code {
        1 => "general failure",
        2 => "not allowed by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "TTL expired",
        7 => "command not supported",
        8 => "address type not supported",
        other => return format!("code {other}"),
    };
    known.to_owned()
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
