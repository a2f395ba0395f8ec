//! Requests about files.

use super::{Read, Reader, boolean, bytes, directory, number, required};
use crate::plan::Bytes;
use crate::session::protocol::Operation;
use crate::session::protocol::files::{Access, FileOperation, Open};
use stockade_json::At;

/// Permission bits and sticky. A set-id bit is never asked for.
const MOST_MODE: u64 = 0o1777;
/// The longest target of a symlink.
const MOST_TARGET: usize = 4095;

/// The reader of an operation, and the fields that it has.
pub fn reader(name: &str) -> Option<(Reader, &'static [&'static str])> {
    let found: (Reader, &[&str]) = match name {
        "open" => (|at| open(at).map(FileOperation::Open).map(Operation::File), OPEN),
        "stat" => (
            |at| wrapped(FileOperation::Stat { path: path(at, "path")?, no_follow: flag(at, "no_follow")? }),
            &["path", "no_follow"],
        ),
        "list" => (list, &["path", "from", "limit"]),
        "make_dir" => (
            |at| {
                let (mode, parents) = (mode(at)?, flag(at, "parents")?);
                wrapped(FileOperation::MakeDir { path: path(at, "path")?, mode, parents })
            },
            &["path", "mode", "parents"],
        ),
        "rename" => (
            |at| {
                let (path, to) = (path(at, "path")?, self::path(at, "to")?);
                wrapped(FileOperation::Rename { path, to, no_replace: flag(at, "no_replace")? })
            },
            &["path", "to", "no_replace"],
        ),
        "remove" => (
            |at| wrapped(FileOperation::Remove { path: path(at, "path")?, recursive: flag(at, "recursive")? }),
            &["path", "recursive"],
        ),
        "symlink" => (symlink, &["path", "target"]),
        "hard_link" => {
            (|at| wrapped(FileOperation::HardLink { path: path(at, "path")?, to: path(at, "to")? }), &["path", "to"])
        }
        "set_attributes" => (set_attributes, &["path", "mode", "modified_ns", "accessed_ns"]),
        _ => return None,
    };
    Some(found)
}

/// The names of the operations.
pub const OPERATIONS: &[&str] =
    &["open", "stat", "list", "make_dir", "rename", "remove", "symlink", "hard_link", "set_attributes"];

const OPEN: &[&str] = &["path", "access", "create", "exclusive", "truncate", "append", "parents", "no_follow", "mode"];

fn wrapped(operation: FileOperation) -> Read<Operation> {
    Ok(Operation::File(operation))
}

fn open(at: &At) -> Read<Open> {
    let access = required(at, "access")?;
    let open = Open {
        path: path(at, "path")?,
        access: match access.text()? {
            "read" => Access::Read,
            "write" => Access::Write,
            "read_write" => Access::ReadWrite,
            _ => return Err(access.wrong("is not read, write or read_write")),
        },
        create: flag(at, "create")?,
        exclusive: flag(at, "exclusive")?,
        truncate: flag(at, "truncate")?,
        append: flag(at, "append")?,
        parents: flag(at, "parents")?,
        no_follow: flag(at, "no_follow")?,
        mode: mode(at)?,
    };
    let needs = |key: &'static str, has: bool, what: &str| match at.get(key)? {
        Some(field) if !has => Err(field.wrong(format!("is not possible without {what}"))),
        _ => Ok(()),
    };
    let writes = open.access != Access::Read;
    ["create", "truncate", "append"].into_iter().try_for_each(|key| needs(key, writes, "access to write"))?;
    ["exclusive", "parents", "mode"].into_iter().try_for_each(|key| needs(key, open.create, "create"))?;
    Ok(open)
}

fn list(at: &At) -> Read<Operation> {
    let from = at.get("from")?.map(|from| match from.text()? {
        text if text.parse::<i64>().is_ok() => Ok(text.to_owned()),
        _ => Err(from.wrong("is not what a reply had as next")),
    });
    let limit = match number(at, "limit", 1000)? {
        Some(0) => return Err(required(at, "limit")?.wrong("must not be 0")),
        limit => limit.map(|limit| limit as u32),
    };
    wrapped(FileOperation::List { path: path(at, "path")?, from: from.transpose()?, limit })
}

fn symlink(at: &At) -> Read<Operation> {
    let field = required(at, "target")?;
    let target = bytes(&field)?;
    if target.as_bytes().is_empty() || target.as_bytes().len() > MOST_TARGET {
        return Err(field.lacks(format!("must have from 1 to {MOST_TARGET} bytes")));
    }
    wrapped(FileOperation::Symlink { path: path(at, "path")?, target })
}

fn set_attributes(at: &At) -> Read<Operation> {
    let time = |key| at.get(key)?.map(|field| field.signed()).transpose();
    let (modified_ns, accessed_ns) = (time("modified_ns")?, time("accessed_ns")?);
    wrapped(FileOperation::SetAttributes { path: path(at, "path")?, mode: mode(at)?, modified_ns, accessed_ns })
}

fn path(at: &At, key: &str) -> Read<Bytes> {
    directory(&required(at, key)?)
}

fn flag(at: &At, key: &str) -> Read<bool> {
    Ok(boolean(at, key)?.unwrap_or(false))
}

fn mode(at: &At) -> Read<Option<u32>> {
    Ok(number(at, "mode", MOST_MODE)?.map(|mode| mode as u32))
}

#[cfg(test)]
mod tests {
    use super::super::request;
    use super::*;
    use crate::session::protocol::Request;

    #[test]
    fn what_a_client_writes_is_read_as_it_was_meant() {
        let path = || Bytes::from("/a b");
        let open = Open {
            path: vec![b'/', 0xff].into(),
            access: Access::ReadWrite,
            create: true,
            exclusive: true,
            truncate: true,
            append: true,
            parents: true,
            no_follow: true,
            mode: Some(0o1755),
        };
        let set = |mode, modified_ns, accessed_ns| FileOperation::SetAttributes {
            path: path(),
            mode,
            modified_ns,
            accessed_ns,
        };
        let operations = [
            FileOperation::Open(open),
            FileOperation::Open(Open { path: path(), ..Open::default() }),
            FileOperation::Stat { path: path(), no_follow: true },
            FileOperation::List { path: path(), from: None, limit: None },
            FileOperation::List { path: path(), from: Some(i64::MIN.to_string()), limit: Some(1000) },
            FileOperation::MakeDir { path: path(), mode: None, parents: false },
            FileOperation::MakeDir { path: path(), mode: Some(0), parents: true },
            FileOperation::Rename { path: path(), to: "/".into(), no_replace: true },
            FileOperation::Remove { path: path(), recursive: true },
            FileOperation::Symlink { path: path(), target: "..".into() },
            FileOperation::HardLink { path: path(), to: "/b".into() },
            set(None, None, None),
            set(Some(7), Some(i64::MIN), Some(i64::MAX)),
        ];
        for operation in operations {
            let written = Request { id: 3, operation: Operation::File(operation) };
            let json = serde_json::to_vec(&written).unwrap();
            let name = String::from_utf8_lossy(&json).into_owned();
            assert_eq!(request(&json).expect(&name), written);
        }
    }

    #[test]
    fn every_mistake_is_named() {
        let refused = |op: &str, rest: &str| {
            let (id, error) = request(format!(r#"{{"id":1,"op":"{op}",{rest}}}"#).as_bytes()).unwrap_err();
            assert_eq!(id, Some(1));
            error.object
        };
        for (op, rest, field) in [
            ("stat", r#""path":"a""#, "path"),
            ("stat", r#""path":"/a\u0000""#, "path"),
            ("stat", r#""path":"/a","follow":true"#, "follow"),
            ("open", r#""path":"/a""#, "access"),
            ("open", r#""path":"/a","access":"execute""#, "access"),
            ("open", r#""path":"/a","access":"read","create":true"#, "create"),
            ("open", r#""path":"/a","access":"write","exclusive":true"#, "exclusive"),
            ("open", r#""path":"/a","access":"write","create":true,"mode":2048"#, "mode"),
            ("make_dir", r#""path":"/a","mode":1024"#, "mode"),
            ("list", r#""path":"/a","limit":0"#, "limit"),
            ("list", r#""path":"/a","limit":1001"#, "limit"),
            ("list", r#""path":"/a","from":"x""#, "from"),
            ("list", r#""path":"/a","from":7"#, "from"),
            ("rename", r#""path":"/a""#, "to"),
            ("symlink", r#""path":"/a","target":"""#, "target"),
            ("hard_link", r#""path":"/a","to":"b""#, "to"),
            ("set_attributes", r#""path":"/a","modified_ns":1e300"#, "modified_ns"),
        ] {
            assert_eq!(refused(op, rest), field, "{op} {rest}");
        }
    }
}
