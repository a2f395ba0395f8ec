//! What a session says, beside its schema.

use super::*;

/// Requests of most kinds, and prints every packet with its kind.
const SEEN: &str = r#"
class Seen(Session):
    def send(self, op, fds=(), **fields):
        print(json.dumps(["Request", {"id": self.next + 1, "op": op, **fields}]))
        return super().send(op, fds, **fields)
    def receive(self):
        message, fds = super().receive()
        print(json.dumps(["Hello" if "protocol" in message else "Reply", message]))
        return message, fds

session = Seen(sys.argv[1])
null = os.open("/dev/null", os.O_RDWR)
session.send("run", (null, null, null), argv=["sh", "-c", "exit 3"], timeout_us=5000000, add_env=["A=b"], user="1000:1000")
while session.receive()[0]["event"] != "done":
    pass
session.send("run", (null, null, null), argv=["sleep", "1000"], background=True)
while session.receive()[0]["event"] != "started":
    pass
for op, fields in [
    ("ping", {}), ("status", {}), ("signal", dict(command="c2", signal=9)), ("wait", dict(command="c2")), ("kill", dict(command="c9")),
    ("net_log", {}), ("logs", dict(follow=False)), ("make_dir", dict(path="/tmp/d", parents=True)),
    ("open", dict(path="/tmp/d/a", access="write", create=True)), ("symlink", dict(path="/tmp/d/l", target="a")),
    ("hard_link", dict(path="/tmp/d/a", to="/tmp/d/h")), ("set_attributes", dict(path="/tmp/d/a", mode=0o600, modified_ns=1)),
    ("stat", dict(path={"hex": b"/tmp/d/a".hex()})), ("list", dict(path="/tmp/d")), ("rename", dict(path="/tmp/d/a", to="/tmp/d/b")),
    ("remove", dict(path="/tmp/d", recursive=True)), ("stat", dict(path="/tmp/d")),
]:
    session.ask(op, **fields)
"#;

#[test]
fn packets_and_lists_are_as_their_schemas_say() {
    let schema: Value = serde_json::from_str(include_str!("../../../profiles/session.schema.json")).unwrap();
    let of = |kind: &str| serde_json::json!({"$ref": format!("#/$defs/{kind}"), "$defs": schema["$defs"]});
    let row: Value = serde_json::from_str(include_str!("../../../profiles/ps.schema.json")).unwrap();
    for_each_session(&[], |session| {
        assert_eq!(schema::violations(&row, &session.row().unwrap()), [""; 0]);
        let seen = super::files::client(session, SEEN);
        assert_eq!(seen.code, Some(0), "{seen:?}");
        assert!(seen.out.lines().count() > 35, "{seen:?}");
        for line in seen.out.lines() {
            let (kind, packet): (String, Value) = serde_json::from_str(line).unwrap();
            assert_eq!(schema::violations(&of(&kind), &packet), [""; 0], "{line}");
        }
        session.verb(&["stop"]);
        assert!(eventually(|| session.row().is_some_and(|row| row["state"] == "ended")));
        assert_eq!(schema::violations(&row, &session.row().unwrap()), [""; 0]);
    });
}
