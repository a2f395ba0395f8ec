//! A systemd scope, delegated to this process: systemd creates the cgroup, moves this process into it, and does not modify it.
//!
//! This module sends one method call to the manager's own socket and implements the D-Bus protocol for it. The client in
//! cgroups-rs starts threads that outlive the call, and a process that clones itself must not have threads.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;

use super::hierarchies;
use crate::sys::schedule;

/// Why root does not call systemd for default limits.
pub const NOT_REQUESTED: &str =
    "systemd takes longer than a start to create one, so root calls it only for a requested budget";

/// The time limit for the manager.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum length of an answer.
const MAX_MESSAGE: usize = 64 << 10;

/// Makes systemd create a scope around this process. Returns the path of its cgroup, or why there is none.
pub fn scope(id: &str) -> Result<PathBuf, String> {
    let path = socket();
    let connected = UnixStream::connect(&path);
    let mut stream = connected.map_err(|error| format!("no systemd answers at {}: {error}", path.display()))?;
    // Unit names cannot contain a plus.
    let unit = format!("stockade-{}-{}.scope", id.replace('+', "_"), std::process::id());
    let text = |text: &str| Value::Text(text.to_owned());
    let properties = [
        ("Description".to_owned(), text("stockade run")),
        ("Delegate".to_owned(), Value::Flag(true)),
        ("CollectMode".to_owned(), text("inactive-or-failed")),
    ];
    ask(&mut stream, &unit, std::process::id(), &properties)
        .map_err(|why| format!("systemd did not make a scope: {why}"))?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        // The call returns when the job is queued. The job is done when this process is in the scope.
        if let Some(v2) = hierarchies::look().v2
            && v2.own.file_name().is_some_and(|name| name == unit.as_str())
        {
            return Ok(v2.own);
        }
        if Instant::now() > deadline {
            return Err(format!("systemd did not move this process to {unit} in time"));
        }
        schedule::pause(Duration::from_millis(1));
    }
}

/// The socket of the system manager for root, and of the user's manager otherwise.
pub fn socket() -> PathBuf {
    let uid = geteuid();
    if uid.is_root() {
        return "/run/systemd/private".into();
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .filter(|path| !path.is_empty())
        .map_or_else(|| format!("/run/user/{uid}").into(), PathBuf::from);
    runtime.join("systemd/private")
}

/// A property of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A boolean.
    Flag(bool),
    /// A signed number of 32 bits.
    Signed(i32),
    /// An unsigned number of 64 bits.
    Number(u64),
    /// A string.
    Text(String),
}

/// Makes systemd create a scope with these properties around a process, or returns why it did not. The scope exists when the
/// process is in its cgroup.
pub fn start_scope(unit: &str, pid: u32, properties: &[(String, Value)]) -> Result<(), String> {
    let path = socket();
    let connected = UnixStream::connect(&path);
    let mut stream = connected.map_err(|error| format!("no systemd answers at {}: {error}", path.display()))?;
    ask(&mut stream, unit, pid, properties).map_err(|why| format!("systemd did not make it: {why}"))
}

/// Changes properties of a unit for the unit's lifetime.
pub fn set_properties(unit: &str, properties: &[(String, Value)]) -> Result<(), String> {
    let path = socket();
    let mut stream =
        UnixStream::connect(&path).map_err(|error| format!("no systemd answers at {}: {error}", path.display()))?;
    let mut body = Message::default();
    body.string(unit);
    body.u32(1); // runtime only
    body.array(8, |array| properties.iter().for_each(|(name, value)| array.value(name, value)));
    call(&mut stream, &manager_call("SetUnitProperties", "sba(sv)", body))
}

/// Makes systemd stop a unit.
pub fn stop(unit: &str) -> Result<(), String> {
    let mut stream = UnixStream::connect(socket()).map_err(|error| error.to_string())?;
    let mut body = Message::default();
    body.string(unit);
    body.string("replace");
    call(&mut stream, &manager_call("StopUnit", "ss", body))
}

fn ask(stream: &mut UnixStream, unit: &str, pid: u32, properties: &[(String, Value)]) -> Result<(), String> {
    call(stream, &start_transient_unit(unit, pid, properties))
}

fn call(stream: &mut UnixStream, message: &[u8]) -> Result<(), String> {
    let io = |error: std::io::Error| error.to_string();
    stream.set_read_timeout(Some(TIMEOUT)).map_err(io)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(io)?;
    // The peer credentials of the socket authenticate the caller. This only repeats the uid.
    let uid: String = geteuid().to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
    stream.write_all(format!("\0AUTH EXTERNAL {uid}\r\n").as_bytes()).map_err(io)?;
    let answer = line(stream).map_err(io)?;
    if !answer.starts_with("OK ") {
        return Err(format!("it refused to talk: {}", answer.trim_end()));
    }
    stream.write_all(b"BEGIN\r\n").map_err(io)?;
    stream.write_all(message).map_err(io)?;
    loop {
        match Answer::read(stream).map_err(io)? {
            Answer::Done => return Ok(()),
            Answer::Refused(why) => return Err(why),
            Answer::Other => {}
        }
    }
}

fn line(stream: &mut UnixStream) -> std::io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\n") && line.len() < 512 {
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// A message under construction. Values are aligned to their size, as the D-Bus specification requires.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }
    fn u32(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }
    fn u64(&mut self, number: u64) {
        self.align(8);
        self.0.extend(number.to_le_bytes());
    }
    fn string(&mut self, text: &str) {
        self.u32(text.len() as u32);
        self.0.extend(text.bytes().chain([0]));
    }
    fn signature(&mut self, text: &str) {
        self.0.push(text.len() as u8);
        self.0.extend(text.bytes().chain([0]));
    }
    /// The elements are aligned to `to`. The padding before the first does not count as length.
    fn array(&mut self, to: usize, fill: impl FnOnce(&mut Self)) {
        self.u32(0);
        let at = self.0.len();
        self.align(to);
        let begin = self.0.len();
        fill(self);
        let length = (self.0.len() - begin) as u32;
        self.0[at - 4..at].copy_from_slice(&length.to_le_bytes());
    }
    fn property(&mut self, name: &str, signature: &str, value: impl FnOnce(&mut Self)) {
        self.align(8);
        self.string(name);
        self.signature(signature);
        value(self);
    }
    fn value(&mut self, name: &str, value: &Value) {
        match value {
            Value::Flag(flag) => self.property(name, "b", |value| value.u32((*flag).into())),
            Value::Signed(number) => self.property(name, "i", |value| value.u32(number.cast_unsigned())),
            Value::Number(number) => self.property(name, "t", |value| value.u64(*number)),
            Value::Text(text) => self.property(name, "s", |value| value.string(text)),
        }
    }
    fn field(&mut self, code: u8, signature: &str, value: impl FnOnce(&mut Self)) {
        self.align(8);
        self.0.push(code);
        self.signature(signature);
        value(self);
    }
}

/// The complete call.
fn start_transient_unit(unit: &str, pid: u32, given: &[(String, Value)]) -> Vec<u8> {
    let mut body = Message::default();
    body.string(unit);
    body.string("fail"); // do not replace an existing unit
    body.array(8, |properties| {
        given.iter().for_each(|(name, value)| properties.value(name, value));
        properties.property("PIDs", "au", |value| value.array(4, |pids| pids.u32(pid)));
    });
    body.array(8, |_| {}); // no auxiliary units
    manager_call("StartTransientUnit", "ssa(sv)a(sa(sv))", body)
}

/// A complete call of a method of the manager.
fn manager_call(method: &str, signature: &str, body: Message) -> Vec<u8> {
    let mut message = Message(vec![b'l', CALL, 0, 1]);
    message.u32(body.0.len() as u32);
    message.u32(SERIAL);
    message.array(8, |fields| {
        fields.field(1, "o", |value| value.string("/org/freedesktop/systemd1"));
        fields.field(2, "s", |value| value.string("org.freedesktop.systemd1.Manager"));
        fields.field(3, "s", |value| value.string(method));
        fields.field(6, "s", |value| value.string("org.freedesktop.systemd1"));
        fields.field(8, "g", |value| value.signature(signature));
    });
    message.align(8);
    message.0.extend(body.0);
    message.0
}

const CALL: u8 = 1;
const RETURN: u8 = 2;
const ERROR: u8 = 3;
const SERIAL: u32 = 1;

/// The answer to a call.
#[derive(Debug, PartialEq)]
enum Answer {
    Done,
    Refused(String),
    /// A signal, which every client receives.
    Other,
}

impl Answer {
    fn read(stream: &mut impl std::io::Read) -> std::io::Result<Self> {
        let wrong = |reason: &str| Err(std::io::Error::new(std::io::ErrorKind::InvalidData, reason.to_owned()));
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        let word = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            if head[0] == b'B' { u32::from_be_bytes(bytes) as usize } else { u32::from_le_bytes(bytes) as usize }
        };
        let (body, fields) = (word(4), word(12));
        if !matches!(head[0], b'l' | b'B') || body > MAX_MESSAGE || fields > MAX_MESSAGE {
            return wrong("its answer is not D-Bus");
        }
        let fields = fields.next_multiple_of(8);
        let mut rest = vec![0; fields + body];
        stream.read_exact(&mut rest)?;
        match head[1] {
            RETURN => Ok(Self::Done),
            ERROR => {
                // The body begins with a string, the error message.
                let text = rest.get(fields + 4..).unwrap_or_default();
                let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
                Ok(Self::Refused(String::from_utf8_lossy(text).into_owned()))
            }
            _ => Ok(Self::Other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_aligned_and_have_the_stated_length() {
        let message = start_transient_unit("stockade-x-1.scope", 0x0102_0304, &[("A".to_owned(), Value::Number(7))]);
        let word = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().unwrap()) as usize;
        assert_eq!(message.len(), 16 + word(12).next_multiple_of(8) + word(4));
        let at = message.windows(3).position(|bytes| bytes == b"au\0").unwrap() + 3;
        let at = at.next_multiple_of(4);
        assert_eq!((word(at), word(at + 4)), (4, 0x0102_0304));
    }

    #[test]
    fn incomplete_answers_are_errors() {
        let answer = |kind: u8, body: &[u8]| {
            let mut message = vec![b'l', kind, 0, 1];
            message.extend((body.len() as u32).to_le_bytes());
            message.extend([7, 0, 0, 0, 3, 0, 0, 0]);
            message.extend([0; 8]);
            message.extend(body);
            message
        };
        let read = |bytes: Vec<u8>| Answer::read(&mut bytes.as_slice());
        assert_eq!(read(answer(RETURN, b"x")).unwrap(), Answer::Done);
        assert_eq!(read(answer(4, b"")).unwrap(), Answer::Other);
        assert_eq!(read(answer(ERROR, b"\x02\0\0\0no\0")).unwrap(), Answer::Refused("no".into()));
        assert_eq!(read(answer(ERROR, b"")).unwrap(), Answer::Refused(String::new()));
        let whole = answer(RETURN, b"abc");
        for length in 0..whole.len() {
            assert!(Answer::read(&mut &whole[..length]).is_err());
        }
        assert!(read(vec![0xff; 64]).is_err());
    }
}
