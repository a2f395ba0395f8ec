//! Network access by name: allowed hosts are reached, and nothing else is.

mod bounds;
mod clients;
mod process;
mod proxy;
mod publish;
mod upstream;
pub mod world;

use std::path::Path;

use serde_json::Value;

use self::world::World;
use crate::common;
use crate::common::schema;
use crate::common::{Outcome, Run, TempDir, attack, for_each_caller, has_program, skip_part, text};

/// A program that fetches by curl, and prints `NAME=STATUS BODY` for each URL, and its seconds if it took long.
const FETCH: &str = r#"
for url in "$@"; do
    begin=$(date +%s%N)
    body=$(curl -sS -m 8 "$url" 2>/dev/null); code=$?
    took=$(( ($(date +%s%N) - begin) / 1000000 ))
    [ $took -lt 2000 ] || echo "SLOW $url: $took ms"
    echo "$url=$code ${body:-}"
done
"#;

fn fetch(run: Run, urls: &[&str]) -> Outcome {
    run.cmd(["/bin/bash", "-c", FETCH, "bash"].into_iter().chain(urls.iter().copied())).go().expect(0)
}

/// The lines of a network log.
fn lines(log: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles/net-log.schema.json");
    let schema: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let line = |line: &str| {
        let line = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(schema::violations(&schema, &line), [""; 0], "{line}");
        line
    };
    log.lines().map(line).collect()
}

/// The reason for which a host was refused, if it was.
fn refusal(outcome: &Outcome, host: &str) -> Option<String> {
    let report = outcome.report();
    let refusals = report["network"]["egress"]["refusals"].as_array().unwrap();
    refusals
        .iter()
        .find(|refusal| refusal["host"] == host)
        .map(|refusal| refusal["reason"].as_str().unwrap().to_owned())
}

#[test]
fn allowed_hosts_are_reached_and_nothing_else() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let log = TempDir::new(caller);
        let run = world.run(caller, &["api.example.com"]).opts(["--net-log", text(&log.join("log"))]);
        let outcome = fetch(
            run,
            &[
                "http://api.example.com/a",
                "http://API.example.com./b",
                "http://other.example.com/",
                "http://api.example.com:8080/",
                "http://203.0.113.10/",
                "http://203.0.113.53:53/",
                "http://169.254.169.254/",
                "http://198.18.0.9/",
                "http://127.0.0.1/",
                "http://[2001:db8::10]/",
                "http://[::ffff:203.0.113.10]/",
            ],
        );
        assert!(outcome.text().contains("http://api.example.com/a=0 203.0.113.10 api.example.com /a\n"), "{outcome}");
        assert!(outcome.text().contains("/b=0 203.0.113.10 "), "{outcome}");
        assert_eq!(outcome.text().matches("=0 ").count(), 2, "{outcome}");
        assert!(!outcome.text().contains("SLOW"), "{outcome}");
        let report = outcome.report();
        let network = &report["network"];
        assert_eq!(network["mode"], "egress");
        assert_eq!(network["egress"]["connections"], 2);
        assert_eq!(network["egress"]["rules"][0]["rule"], "api.example.com");
        assert_eq!(network["egress"]["rules"][0]["connections"], 2);
        assert_eq!(refusal(&outcome, "other.example.com").as_deref(), Some("no_rule"));
        let lines = lines(&std::fs::read_to_string(log.join("log")).unwrap());
        let sent: u64 = lines.iter().map(|line| line["bytes_sent"].as_u64().unwrap()).sum();
        assert_eq!(network["egress"]["bytes_sent"], sent);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(
            (&lines[0]["name"], &lines[0]["address"], &lines[0]["result"]),
            (&"api.example.com".into(), &"203.0.113.10".into(), &"closed".into())
        );
        assert_eq!(
            (&lines[2]["event"], &lines[2]["name"], &lines[2]["reason"]),
            (&"name".into(), &"other.example.com".into(), &"no_rule".into())
        );
    });
    let came = world.came();
    assert_eq!(came.asked(), ["api.example.com"], "nothing else is asked outside");
    assert_eq!(came.addresses(), ["203.0.113.10:80"]);
}

/// A rule for the address is the control: it makes the same name lead there.
#[test]
fn an_allowed_name_never_leads_inside() {
    let Some(mut world) = World::new() else { return };
    let names = [
        ("private", "10.0.0.5"),
        ("loopback", "127.0.0.1"),
        ("metadata", "169.254.169.254"),
        ("alibaba", "100.100.100.200"),
        ("oracle", "192.0.0.192"),
        ("azure", "168.63.129.16"),
        ("unspecified", ""),
        ("multicast", ""),
        ("broadcast", ""),
        ("synthetic", ""),
        ("loopback6", ""),
        ("mapped", ""),
        ("mappedpublic", ""),
        ("nat64", ""),
        ("amazon6", ""),
        ("linklocal6", ""),
    ];
    let urls: Vec<String> = names.iter().map(|(name, _)| format!("http://{name}.example.com/")).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    for_each_caller(|caller| {
        let outcome = fetch(world.run(caller, &["*.example.com", "0.0.0.0/0"]), &urls);
        assert!(!outcome.text().contains("=0 "), "{outcome}");
        for (name, _) in names {
            let reason = refusal(&outcome, &format!("{name}.example.com")).unwrap_or_default();
            assert!(reason.starts_with("address_refused"), "{name}: {reason}: {outcome}");
        }
        let named: Vec<&str> =
            names.iter().map(|(_, address)| *address).filter(|address| !address.is_empty()).collect();
        let outcome = fetch(world.run(caller, &[&["*.example.com"][..], &named].concat()), &urls);
        assert_eq!(outcome.text().matches("=0 ").count(), named.len(), "{outcome}");
    });
    let came = world.came();
    assert_eq!(came.to("10.0.0.5:80") as usize, common::callers().len(), "only the control");
    assert_eq!(came.to("127.0.0.1:80") as usize, common::callers().len());
}

#[test]
fn what_was_checked_is_what_is_dialled() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let names = [
            "http://both.example.com/",
            "http://rebinding.example.com/1",
            "http://rebinding.example.com/2",
            "http://alias.example.com/",
            "http://big.example.com/",
        ];
        let outcome = fetch(world.run(caller, &["*.example.com"]), &names);
        for name in ["both", "alias", "big"] {
            assert!(outcome.text().contains(&format!("http://{name}.example.com/=0 203.0.113.10")), "{outcome}");
        }
    });
    let came = world.came();
    assert_eq!(came.addresses(), ["203.0.113.10:80"]);
    assert!(came.asked().contains(&"rebinding.example.com".to_owned()));
}

#[test]
fn addresses_are_reached_by_rules_for_addresses() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let rules = ["10.0.0.5:80", "203.0.113.0/24:80", "[2001:db8::10]"];
        let run = world.run(caller, &rules).opts(["--deny-net", "203.0.113.11"]);
        let urls = [
            "http://10.0.0.5/",
            "http://10.0.0.6/",
            "http://203.0.113.10/",
            "http://203.0.113.11/",
            "http://203.0.113.10:8080/",
            "http://[2001:db8::10]/",
        ];
        let outcome = fetch(run, &urls);
        assert!(outcome.text().contains("http://10.0.0.5/=0 10.0.0.5"), "{outcome}");
        assert!(outcome.text().contains("http://203.0.113.10/=0 203.0.113.10"), "{outcome}");
        match world.has_six {
            true => assert!(outcome.text().contains("http://[2001:db8::10]/=0 2001:db8::10"), "{outcome}"),
            false => skip_part("IPv6", "the kernel has none"),
        }
        assert_eq!(outcome.text().matches("=0 ").count(), 2 + usize::from(world.has_six), "{outcome}");
        assert!(!outcome.text().contains("SLOW"), "{outcome}");
        assert_eq!(refusal(&outcome, "203.0.113.11").as_deref(), Some("no_rule"));
        // A single address takes its port from no other.
        let bind = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 80)); s.listen(); print('bound')";
        let outcome = world
            .run(caller, &["10.0.0.5:80", "api.example.com:80"])
            .opts(["--cap-add", "NET_BIND_SERVICE"])
            .python(bind)
            .go()
            .expect(0);
        assert_eq!(outcome.text(), "bound\n");
    });
    let came = world.came();
    assert_eq!((came.to("10.0.0.6:80"), came.to("203.0.113.11:80"), came.to("203.0.113.10:8080")), (0, 0, 0));
    assert!(came.asked().is_empty(), "addresses need no name server");
}

#[test]
fn names_below_a_domain_are_reached_unless_denied() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let run = world.run(caller, &["*.cdn.example.com"]).opts(["--deny-net", "secret.cdn.example.com"]);
        let urls = [
            "http://deep.a.cdn.example.com/",
            "http://cdn.example.com/",
            "http://secret.cdn.example.com/",
            "http://api.example.com/",
            "http://badcdn.example.com/",
            "http://absent.cdn.example.com/",
        ];
        let outcome = fetch(run, &urls);
        assert!(outcome.text().contains("http://deep.a.cdn.example.com/=0 203.0.113.10"), "{outcome}");
        assert_eq!(outcome.text().matches("=0 ").count(), 1, "{outcome}");
        for denied in ["secret.cdn.example.com", "cdn.example.com", "api.example.com", "badcdn.example.com"] {
            assert_eq!(refusal(&outcome, denied).as_deref(), Some("no_rule"), "{denied}");
        }
    });
    assert_eq!(world.came().asked(), ["absent.cdn.example.com", "deep.a.cdn.example.com"]);
}

/// The client decides which server name it sends; the address behind is the same.
#[test]
fn a_server_name_of_another_host_is_refused() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let certificate = world.directory.join("cert.pem");
        let script = r#"
for connect in api.example.com other.example.com evil.example.org; do
    curl -sS -m 8 --cacert /cert.pem --connect-to "$connect:443:api.example.com:443" "https://$connect/" 2>/dev/null
    echo "$connect=$?"
done
"#;
        let absent = attack(
            r#"
import socket, ssl
context = ssl._create_unverified_context()
def hello(name):
    raw = socket.create_connection(("api.example.com", 443), 8)
    with context.wrap_socket(raw, server_hostname=name) as s:
        s.sendall(b"GET /x HTTP/1.0\r\nHost: api.example.com\r\n\r\n")
        assert s.recv(9).startswith(b"HTTP"), "no answer"
attempt("right", lambda: hello("api.example.com"))
attempt("upper", lambda: hello("API.EXAMPLE.com"))
attempt("none", lambda: hello(None))
attempt("address", lambda: hello("127.0.0.1"))
attempt("other", lambda: hello("other.example.com"))
"#,
        );
        let show = format!("{}:/cert.pem:ro", text(&certificate));
        let outcome = world.run(caller, &["api.example.com"]).opts(["-v", &show]).sh(script).go().expect(0);
        assert!(outcome.text().contains("api.example.com=0\n"), "{outcome}");
        assert_eq!(outcome.text().matches("=0\n").count(), 1, "{outcome}");
        assert_eq!(refusal(&outcome, "api.example.com").as_deref(), Some("sni_mismatch"));
        let log = TempDir::new(caller);
        let run = world.run(caller, &["api.example.com"]).opts(["--net-log", text(&log.join("log"))]);
        let outcome = run.python(&absent).go().expect(0);
        assert_eq!((outcome.value("right").as_str(), outcome.value("upper").as_str()), ("OK", "OK"), "{outcome}");
        for refused in ["none", "address", "other"] {
            assert_ne!(outcome.value(refused), "OK", "{outcome}");
        }
        let lines = lines(&std::fs::read_to_string(log.join("log")).unwrap());
        let reasons: Vec<&str> = lines[2..].iter().filter_map(|line| line["reason"].as_str()).collect();
        assert_eq!(reasons, ["sni_absent", "sni_absent", "sni_mismatch"], "{lines:?}");
        assert_eq!((&lines[4]["server_name"], &lines[4]["bytes_sent"]), (&"other.example.com".into(), &0.into()));
    });
    world.came();
}

#[test]
fn servers_that_speak_first_and_half_closes_work() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let program = r#"
import socket
with socket.create_connection(("api.example.com", 22), 8) as s:
    assert s.recv(6) == b"READY\n"
    s.sendall(b"a" * 300000)
    s.shutdown(socket.SHUT_WR)
    got = b""
    while part := s.recv(65536):
        got += part
    print(len(got), set(got))
# What is sent right before the end arrives.
s = socket.create_connection(("api.example.com", 22), 8)
s.sendall(b"last words")
"#;
        let outcome = world.run(caller, &["api.example.com:22"]).python(program).go().expect(0);
        assert_eq!(outcome.text(), "300000 {65}\n");
    });
    let came = world.came();
    assert_eq!(came.to("first:last words"), 10);
}

#[test]
fn questions_are_answered_from_the_rules_alone() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let program = r#"
import socket, struct, time
def question(name, kind=1, flags=b"\1\0", count=1):
    labels = b"".join(bytes([len(part)]) + part for part in name) + b"\0"
    return b"\0\7" + flags + struct.pack(">HHHH", count, 0, 0, 0) + labels + struct.pack(">HH", kind, 1)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(3)
udp.connect(("198.18.0.1", 53))
def ask(packet):
    udp.send(packet)
    reply = udp.recv(4096)
    return reply[3] & 15, struct.unpack(">H", reply[6:8])[0]
api = [b"api", b"example", b"com"]
print("a", ask(question(api)), "case", ask(question([b"API", b"eXample", b"com"])), "aaaa", ask(question(api, 28)), "https", ask(question(api, 65)))
for odd in ([b"api", b"example", b"com", b"evil"], [b"api\0", b"example", b"com"], [b"api.example", b"com"], [b"api ", b"example", b"com"], [b"api", b"example", b"com\0"], [], [b"x" * 63] * 3):
    print(ask(question(odd)))
print(ask(question(api, count=2)), ask(question(api)[:20]), ask(question(api, flags=b"\x29\0")))
tcp = socket.create_connection(("198.18.0.1", 53), 3)
for packet in (question(api), question([b"no"])):
    for byte in struct.pack(">H", len(packet)) + packet:
        tcp.send(bytes([byte]))
    length = struct.unpack(">H", tcp.recv(2))[0]
    print("tcp", tcp.recv(length)[3] & 15)
begin = time.monotonic()
for number in range(20000):
    udp.send(question([b"n%d" % number, b"example", b"org"]))
udp.setblocking(False)
try:
    while True: udp.recv(4096)
except BlockingIOError: pass
time.sleep(0.3)
udp.settimeout(3)
try:
    while udp.recv(4096): udp.settimeout(0.3)
except TimeoutError: pass
udp.settimeout(5)
print("after", ask(question(api)))
# Other resolvers, by UDP and TCP.
for address in ("203.0.113.53", "127.0.0.53", "8.8.8.8", "198.18.0.2"):
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        s = socket.socket(socket.AF_INET, kind)
        s.settimeout(1)
        try:
            s.connect((address, 53)); s.send(question(api)); print(address, "answered", s.recv(99))
        except OSError as error:
            assert not isinstance(error, TimeoutError), address
"#;
        let outcome = world.run(caller, &["api.example.com"]).python(program).go().expect(0);
        let expected = "a (0, 1) case (0, 1) aaaa (0, 0) https (0, 0)\n".to_owned()
            + &"(3, 0)\n".repeat(7)
            + "(1, 0) (1, 0) (4, 0)\ntcp 0\ntcp 3\nafter (0, 1)\n";
        assert_eq!(outcome.text(), expected, "{outcome}");
        let report = outcome.report();
        let egress = &report["network"]["egress"];
        assert_eq!(egress["refusals"].as_array().unwrap().len(), 256, "the list is bounded");
        assert!(egress["refusals_unlisted"].as_u64().unwrap() > 100);
    });
    assert_eq!(world.came().asked(), [""; 0], "no question goes outside without a connection");
}

#[test]
fn rules_come_from_policies_and_files() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let files = TempDir::new(caller);
        files.file("rules", "# the service\napi.example.com # comment\n\n*.cdn.example.com:80\n");
        let policy = files.file(
            "p.toml",
            "version = 1\n[network]\nallow = [\"@rules\"]\ndeny = [\"secret.cdn.example.com\"]\nhosts = [\"api.example.com=203.0.113.11\"]\ndns = \"203.0.113.53:53\"\n",
        );
        let urls = [
            "http://api.example.com/",
            "http://deep.a.cdn.example.com/",
            "http://secret.cdn.example.com/",
            "http://other.example.com/",
        ];
        let outcome = fetch(world.run_plain(caller).opts(["-p", text(&policy)]), &urls);
        assert!(outcome.text().contains("http://api.example.com/=0 203.0.113.11"), "the given address: {outcome}");
        assert!(outcome.text().contains("http://deep.a.cdn.example.com/=0"), "{outcome}");
        assert_eq!(outcome.text().matches("=0 ").count(), 2, "{outcome}");
        let outcome =
            fetch(world.run_plain(caller).opts(["-p", text(&policy), "--allow-net", "other.example.com"]), &urls);
        assert_eq!(outcome.text().matches("=0 ").count(), 3, "flags add: {outcome}");
    });
    world.came();
}

#[test]
fn refusals_are_explained() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let run = world.run(caller, &["private.example.com"]).opts(["--explain-denials"]);
        let urls = [
            "http://private.example.com/",
            "http://other.example.com/",
            "http://private.example.com:8080/",
            "http://10.0.0.6/",
        ];
        let outcome = fetch(run, &urls);
        assert!(outcome.stderr.contains("--allow-net other.example.com would allow it"), "{outcome}");
        assert!(outcome.stderr.contains("--allow-net 10.0.0.5:80 would let names lead there"), "{outcome}");
        assert!(!outcome.stderr.contains("host.conf"), "every resolver does without it: {outcome}");
        for (host, error) in [("private.example.com:8080", "ECONNREFUSED"), ("10.0.0.6:80", "ENETUNREACH")] {
            let line = outcome
                .stderr
                .lines()
                .find(|line| line.contains(&format!("network connect({host})")))
                .unwrap_or_default();
            assert!(
                line.contains(error) && line.contains(&format!("--allow-net {host} would allow it")),
                "{host}: {outcome}"
            );
        }
        let run = world.run_plain(caller).opts(["--network", "host", "--explain-denials"]);
        let outcome = fetch(run, &["http://10.0.0.6:81/"]);
        assert!(!outcome.stderr.contains("network connect"), "the caller's network is not explained: {outcome}");
    });
    world.came();
}

#[test]
fn wrong_rules_are_refused_by_name() {
    for_each_caller(|caller| {
        let files = TempDir::new(caller);
        files.file("rules", "api.example.com\n\nhttp://x\n");
        let rules = format!("@{}", text(&files.join("rules")));
        let alone = text(&files.join("log")).to_owned();
        for (options, says) in [
            (vec!["--allow-net", "https://api.example.com"], "not a URL"),
            (vec!["--allow-net", "*"], "* alone would be every name"),
            (vec!["--allow-net", "a.example:0"], "is not a port"),
            (vec!["--allow-net", "10.0.0.1/8"], "bits set behind its length"),
            (vec!["--allow-net", &rules], ":3: "),
            (vec!["--allow-net", "@/nowhere"], "No such file"),
            (vec!["--allow-net", "a.example", "--network", "none"], "the network is none"),
            (vec!["--allow-net", "a.example", "--network", "host"], "the network is host"),
            (vec!["--network", "egress"], "no host is allowed"),
            (vec!["--deny-net", "a.example"], "no host is allowed"),
            (vec!["--net-budget", "1M"], "no host is allowed"),
            (vec!["--allow-net", "a.example:1-65535"], "sockets"),
            (vec!["--allow-net", "a.example", "--net-connections", "99999999"], "too many"),
            (vec!["--allow-net", "a.example", "--add-host", "a.example=x"], "is not an address"),
            (vec!["--allow-net", "a.example", "--dns", "dns.example"], "address of a name server"),
            (vec!["--allow-net", "a.example", "--net-log", "/dev/null"], "not a regular file"),
            (vec!["--net-log", &alone], "--allow-net"),
        ] {
            let outcome = Run::new(caller).opts(options.clone()).sh("true").go().expect(125);
            assert!(outcome.stderr.contains(says), "{options:?}: {outcome}");
        }
        let shared = files.dir("shared");
        let bind = format!("{}:/shared", text(&shared));
        let log = shared.join("log");
        let outcome = Run::new(caller)
            .opts(["--allow-net", "a.example", "-v", &bind, "--net-log", text(&log)])
            .sh("true")
            .go()
            .expect(125);
        assert!(outcome.stderr.contains("the network log"), "{outcome}");
    });
}

/// Programs as they are, without any setting for a proxy.
#[test]
fn clients_work_unchanged() {
    let Some(mut world) = World::new() else { return };
    let certificate = world.directory.join("cert.pem");
    let show = format!("{}:/cert.pem:ro", text(&certificate));
    let clients = [
        ("wget", "wget -q -O - http://api.example.com/w"),
        ("curl", "curl -sS --cacert /cert.pem https://api.example.com/c"),
        (
            "python3",
            "/usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen(\"http://api.example.com/p\").read().decode())'",
        ),
        (
            "python3",
            "/usr/bin/python3 -c '
import asyncio
async def main():
    r, w = await asyncio.open_connection(\"api.example.com\", 80)
    w.write(b\"GET /y HTTP/1.0\\r\\nHost: api.example.com\\r\\n\\r\\n\")
    print((await r.read()).decode())
asyncio.run(main())'",
        ),
        (
            "git",
            "git ls-remote http://api.example.com/r 2>&1 | grep -q 'not found\\|not valid\\|info/refs' && echo 203.0.113.10",
        ),
        ("node", "node -e 'fetch(\"http://api.example.com/n\").then(r => r.text()).then(console.log)'"),
        ("busybox", "busybox wget -q -O - http://api.example.com/b"),
        (
            "perl",
            "perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(\"api.example.com:80\") or die $@; print $s \"GET / HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n\"; print <$s>'",
        ),
    ];
    for_each_caller(|caller| {
        for (program, script) in clients {
            if !has_program(program) {
                skip_part(program, "it is not installed");
                continue;
            }
            let outcome =
                world.run(caller, &["api.example.com"]).opts(["-v", &show]).cmd(["/bin/bash", "-c", script]).go();
            assert!(outcome.text().contains("203.0.113.10"), "{program}: {outcome}");
        }
    });
    world.came();
}
