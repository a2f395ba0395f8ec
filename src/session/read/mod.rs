//! Reads a request. Every mistake in one is named: the field, its value and why it is wrong.

mod files;

use stockade_egress::rule::Rule;
use stockade_json::{At, Error as Mistake, Json, parse};

use crate::error::{Error, Step, nearest};
use crate::plan::{Bytes, Keep, unhex};
use crate::session::protocol::{Limit, Operation, Request, Run, Size};
use crate::session::wire::MOST_IN_MEMORY;

/// Longest single string of an environment or an argv, `MAX_ARG_STRLEN` without its NUL, `execve(2)`.
const MOST_STRING: usize = 131_071;
/// The most strings of an argv or an environment.
const MOST_STRINGS: usize = 100_000;
/// A hundred years: times are added to clocks, and must not overflow them.
const MOST_TIME: u64 = 100 * 366 * 86_400 * 1_000_000;
/// The most bytes of the end of a stream that are kept in memory until it ends.
const MOST_TAIL: u64 = 16 << 20;

type Read<T> = Result<T, Mistake>;
/// Reads the fields of an operation.
type Reader = fn(&At) -> Read<Operation>;

/// Reads a request. With an error comes the request's id, if that could be read.
pub fn request(json: &[u8]) -> Result<Request, (Option<u64>, Error)> {
    let wrong = |mistake: Mistake| Error::new(Step::SessionRequest, mistake.path.clone(), mistake.message());
    let tree = parse(json, MOST_IN_MEMORY).map_err(|mistake| (None, wrong(mistake)))?;
    let root = At::root(&tree);
    let id = required(&root, "id").and_then(|id| id.number(u64::MAX)).map_err(|mistake| (None, wrong(mistake)))?;
    match operation(&root) {
        Ok(operation) => Ok(Request { id, operation }),
        Err(mistake) => Err((Some(id), wrong(mistake))),
    }
}

fn operation(root: &At) -> Read<Operation> {
    let name = required(root, "op")?;
    let (operation, fields): (Reader, &[&str]) = match name.text()? {
        "run" => (|at| run(at).map(|run| Operation::Run(Box::new(run))), RUN),
        "signal" => (
            |at| {
                let signal = required(at, "signal")?;
                let number = signal.number(64)? as u8;
                let command = text(at, "command")?;
                if number == 0 {
                    Err(signal.wrong("must be from 1 to 64"))
                } else {
                    Ok(Operation::Signal { command, signal: number })
                }
            },
            &["command", "signal"],
        ),
        "kill" => (|at| Ok(Operation::Kill { command: text(at, "command")? }), &["command"]),
        "status" => (|_| Ok(Operation::Status), &[]),
        "stop" => (|at| Ok(Operation::Stop { grace_us: time(at, "grace_us")? }), &["grace_us"]),
        "pause" => (|_| Ok(Operation::Pause), &[]),
        "unpause" => (|_| Ok(Operation::Unpause), &[]),
        "logs" => (
            |at| {
                let [follow, from_now] = ["follow", "from_now"].map(|key| Ok(boolean(at, key)?.unwrap_or(false)));
                Ok(Operation::Logs { follow: follow?, from_now: from_now? })
            },
            &["follow", "from_now"],
        ),
        "wait" => (
            |at| {
                let command = at.get("command")?.map(|word| word.text().map(str::to_owned)).transpose()?;
                Ok(Operation::Wait { command })
            },
            &["command"],
        ),
        "allow_net" => (|at| Ok(Operation::AllowNet { rule: rule(at)? }), &["rule"]),
        "deny_net" => (|at| Ok(Operation::DenyNet { rule: rule(at)? }), &["rule"]),
        "net_log" => (|at| Ok(Operation::NetLog { follow: boolean(at, "follow")?.unwrap_or(false) }), &["follow"]),
        "ping" => (|_| Ok(Operation::Ping), &[]),
        other => match files::reader(other) {
            Some(found) => found,
            None => {
                let near = nearest(other, OPERATIONS.iter().chain(files::OPERATIONS).copied());
                let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
                return Err(name.wrong(format!("is not an operation{near}")));
            }
        },
    };
    only(root, fields)?;
    operation(root)
}

const OPERATIONS: &[&str] = &[
    "run",
    "signal",
    "kill",
    "status",
    "stop",
    "pause",
    "unpause",
    "logs",
    "wait",
    "allow_net",
    "deny_net",
    "net_log",
    "ping",
];

const RUN: &[&str] = &[
    "argv",
    "env",
    "add_env",
    "cwd",
    "user",
    "umask",
    "tty",
    "timeout_us",
    "kill_after_us",
    "cpu_us",
    "idle_us",
    "memory_bytes",
    "pids",
    "cpu_quota_us",
    "output_limit",
    "explain_denials",
    "hash_program",
    "background",
];

fn run(at: &At) -> Read<Run> {
    let argv = required(at, "argv")?;
    let words = strings(&argv)?;
    if words.first().is_none_or(|word| word.as_bytes().is_empty()) {
        return Err(argv.lacks("must begin with a command"));
    }
    let tty = at.get("tty")?.map(|tty| size(&tty)).transpose()?;
    let run = Run {
        argv: words,
        env: at.get("env")?.map(|env| variables(&env)).transpose()?,
        add_env: at.get("add_env")?.map(|env| variables(&env)).transpose()?.unwrap_or_default(),
        cwd: at.get("cwd")?.map(|cwd| directory(&cwd)).transpose()?,
        user: at
            .get("user")?
            .map(|user| user.text()?.parse().map_err(|reason: String| user.lacks(reason)))
            .transpose()?,
        umask: number(at, "umask", 0o777)?.map(|umask| umask as u32),
        tty,
        timeout_us: time(at, "timeout_us")?,
        kill_after_us: time(at, "kill_after_us")?,
        cpu_us: time(at, "cpu_us")?,
        idle_us: time(at, "idle_us")?,
        memory_bytes: positive(at, "memory_bytes")?,
        pids: positive(at, "pids")?,
        cpu_quota_us: positive(at, "cpu_quota_us")?,
        output_limit: at.get("output_limit")?.map(|limit| output_limit(&limit)).transpose()?,
        explain_denials: boolean(at, "explain_denials")?,
        hash_program: boolean(at, "hash_program")?,
        background: boolean(at, "background")?.unwrap_or(false),
    };
    for key in ["idle_us", "output_limit"] {
        if let (Some(_), Some(field)) = (tty, at.get(key)?) {
            return Err(field.wrong("is not possible with tty, whose output does not pass through the session"));
        }
    }
    Ok(run)
}

/// Fails for a field that the operation does not have.
fn only(at: &At, known: &[&str]) -> Read<()> {
    match at.entries()?.find(|(key, _)| !matches!(*key, "id" | "op") && !known.contains(key)) {
        None => Ok(()),
        Some((key, field)) => {
            let near = nearest(key, known.iter().copied());
            let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            Err(field.lacks(format!("is not a field of this operation{near}")))
        }
    }
}

fn required<'s>(at: &'s At, key: &'s str) -> Read<At<'s>> {
    at.get(key)?.ok_or_else(|| Mistake { path: key.to_owned(), value: None, reason: "is missing".to_owned() })
}

fn text(at: &At, key: &str) -> Read<String> {
    required(at, key)?.text().map(str::to_owned)
}

fn rule(at: &At) -> Read<Rule> {
    let rule = required(at, "rule")?;
    rule.text()?.parse().map_err(|reason: String| rule.lacks(reason))
}

fn boolean(at: &At, key: &str) -> Read<Option<bool>> {
    at.get(key)?.map(|field| field.boolean()).transpose()
}

fn number(at: &At, key: &str, most: u64) -> Read<Option<u64>> {
    at.get(key)?.map(|field| field.number(most)).transpose()
}

fn time(at: &At, key: &str) -> Read<Option<u64>> {
    number(at, key, MOST_TIME)
}

/// A limit: zero would mean "unlimited" in some files of a cgroup, and nothing at all in others.
fn positive(at: &At, key: &str) -> Read<Option<u64>> {
    let Some(field) = at.get(key)? else { return Ok(None) };
    match field.number(i64::MAX as u64)? {
        0 => Err(field.wrong("must not be 0")),
        number => Ok(Some(number)),
    }
}

fn bytes(at: &At) -> Read<Bytes> {
    let bytes = match at.json {
        Json::String(text) => text.as_bytes().to_vec(),
        Json::Object(_) => {
            only(at, &["hex"])?;
            let hex = required(at, "hex")?;
            unhex(hex.text()?).ok_or_else(|| hex.wrong("is not hexadecimal"))?
        }
        _ => return Err(at.wrong("must be a string or {\"hex\": \"…\"}")),
    };
    if bytes.contains(&0) {
        return Err(at.wrong("contains a NUL byte"));
    }
    if bytes.len() > MOST_STRING {
        return Err(at.lacks(format!("is {} bytes long; execve accepts at most {MOST_STRING}", bytes.len())));
    }
    Ok(bytes.into())
}

fn strings(at: &At) -> Read<Vec<Bytes>> {
    let items = at.items()?;
    let list = items.take(MOST_STRINGS + 1).map(|item| bytes(&item)).collect::<Read<Vec<_>>>()?;
    if list.len() > MOST_STRINGS { Err(at.lacks(format!("has more than {MOST_STRINGS} strings"))) } else { Ok(list) }
}

fn variables(at: &At) -> Read<Vec<Bytes>> {
    let list = strings(at)?;
    let named = |entry: &Bytes| entry.as_bytes().iter().position(|byte| *byte == b'=').is_some_and(|at| at > 0);
    match list.iter().position(|entry| !named(entry)) {
        None => Ok(list),
        Some(index) => Err(at.lacks(format!("[{index}] is not NAME=value"))),
    }
}

fn directory(at: &At) -> Read<Bytes> {
    let path = bytes(at)?;
    if path.as_bytes().starts_with(b"/") && path.as_bytes().len() < 4096 {
        return Ok(path);
    }
    Err(at.wrong("must be an absolute path in the sandbox"))
}

fn size(at: &At) -> Read<Size> {
    only(at, &["rows", "columns"])?;
    let side = |key| required(at, key).and_then(|side| side.number(u16::MAX.into()));
    Ok(Size { rows: side("rows")? as u16, columns: side("columns")? as u16 })
}

fn output_limit(at: &At) -> Read<Limit> {
    only(at, &["bytes", "keep"])?;
    let keep = required(at, "keep")?;
    let keep = match keep.text()? {
        "head" => Keep::Head,
        "tail" => Keep::Tail,
        "kill" => Keep::Kill,
        _ => return Err(keep.wrong("is not head, tail or kill")),
    };
    let limit = required(at, "bytes")?;
    match limit.number(i64::MAX as u64)? {
        bytes if keep == Keep::Tail && bytes > MOST_TAIL => {
            Err(limit.wrong(format!("tail keeps output in memory, at most {MOST_TAIL} bytes")))
        }
        bytes => Ok(Limit { bytes, keep }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> (Option<u64>, String) {
        let (id, error) = request(json.as_bytes()).unwrap_err();
        (id, error.to_string().replacen("reading the request: ", "", 1))
    }

    #[test]
    fn what_a_client_writes_is_read_as_it_was_meant() {
        let whole = Run {
            argv: vec!["sh".into(), vec![0xff, b'x'].into()],
            env: Some(vec!["A=b".into()]),
            add_env: vec!["C=".into()],
            cwd: Some("/tmp".into()),
            umask: Some(0o77),
            user: Some(crate::session::protocol::User::Ids(7, 8)),
            tty: None,
            timeout_us: Some(1),
            kill_after_us: Some(2),
            cpu_us: Some(3),
            idle_us: Some(4),
            memory_bytes: Some(5),
            pids: Some(6),
            cpu_quota_us: Some(7),
            output_limit: Some(Limit { bytes: 8, keep: Keep::Tail }),
            explain_denials: Some(true),
            hash_program: Some(false),
            background: true,
        };
        let tty = Some(Size { rows: 24, columns: 80 });
        let least = Run { argv: vec!["true".into()], tty, ..Run::default() };
        let operations = [
            Operation::Run(Box::new(whole)),
            Operation::Run(Box::new(least)),
            Operation::Signal { command: "c1".into(), signal: 15 },
            Operation::Kill { command: "all".into() },
            Operation::Status,
            Operation::Stop { grace_us: None },
            Operation::Stop { grace_us: Some(9) },
            Operation::Pause,
            Operation::Unpause,
            Operation::Logs { follow: true, from_now: false },
            Operation::Logs { follow: true, from_now: true },
            Operation::Wait { command: None },
            Operation::Wait { command: Some("main".into()) },
            Operation::Ping,
        ];
        for operation in operations {
            let written = Request { id: u64::MAX, operation };
            let json = serde_json::to_vec(&written).unwrap();
            let name = String::from_utf8_lossy(&json).into_owned();
            assert_eq!(request(&json).expect(&name), written);
        }
    }

    #[test]
    fn every_mistake_is_named() {
        let run = |rest: &str| refused(&format!(r#"{{"id":1,"op":"run",{rest}}}"#)).1;
        assert_eq!(refused(r#"{"op":"ping"}"#), (None, "id: is missing".into()));
        assert_eq!(refused(r#"{"id":-1,"op":"ping"}"#).0, None);
        assert_eq!(refused(r#"{"id":7}"#), (Some(7), "op: is missing".into()));
        assert_eq!(
            refused(r#"{"id":7,"op":"pong"}"#),
            (Some(7), "op: \"pong\": is not an operation; did you mean ping?".into())
        );
        assert_eq!(run(r#""argv":["a"],"timeout":5"#), "timeout: is not a field of this operation");
        assert_eq!(
            run(r#""argv":["a"],"cpus_us":5"#),
            "cpus_us: is not a field of this operation; did you mean cpu_us?"
        );
        assert_eq!(run(r#""argv":[]"#), "argv: must begin with a command");
        assert_eq!(run(r#""argv":"a""#), "argv: \"a\": must be an array");
        assert_eq!(run(r#""argv":["a",7]"#), "argv[1]: 7: must be a string or {\"hex\": \"…\"}");
        assert_eq!(run(r#""argv":["a\u0000"]"#), "argv[0]: \"a\\u0000\": contains a NUL byte");
        assert_eq!(run(r#""argv":["a"],"env":["=x"]"#), "env: [0] is not NAME=value");
        assert_eq!(run(r#""argv":["a"],"cwd":"tmp""#), "cwd: \"tmp\": must be an absolute path in the sandbox");
        assert_eq!(run(r#""argv":["a"],"memory_bytes":0"#), "memory_bytes: 0: must not be 0");
        assert!(run(r#""argv":["a"],"timeout_us":18446744073709551615"#).starts_with("timeout_us: "));
        assert!(run(r#""argv":["a"],"timeout_us":1e300"#).starts_with("timeout_us: "));
        assert!(run(r#""argv":["a"],"tty":{"rows":1,"columns":2},"idle_us":3"#).contains("not possible with tty"));
        assert!(run(r#""argv":["a"],"argv":["b"]"#).contains("duplicate"));
        assert_eq!(refused(r#"{"id":1,"op":"signal","command":"c1","signal":0}"#).1, "signal: 0: must be from 1 to 64");
        for json in ["", "[]", "7", "{", "\u{0}", &"[".repeat(60_000), r#"{"id":1,"op":"ping"} x"#] {
            assert_eq!(refused(json).0, None, "{json:.20}");
        }
        let deep = format!(r#"{{"id":1,"op":"ping","x":{}1{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(refused(&deep).0, None);
    }

    /// The reader and the types, from which the schema is made, have the same fields.
    #[test]
    fn the_fields_of_run_are_those_of_the_type() {
        let schema = schemars::schema_for!(Run).to_value();
        let mut known: Vec<&str> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut read = RUN.to_vec();
        known.sort_unstable();
        read.sort_unstable();
        assert_eq!(known, read);
    }
}
