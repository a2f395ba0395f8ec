//! Programs as they are, without a setting for a proxy, and real servers.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::refusal;
use super::world::SERVER;
use crate::common::{
    Caller, PATH, PYTHON, Run, TempDir, for_each_caller, has_program, is_root, leaks, skip, skip_part, text,
};

/// The network of the servers.
struct Servers {
    process: Child,
    input: Option<ChildStdin>,
    /// What could not be started, with the reason.
    absent: String,
    directory: TempDir,
}

impl Servers {
    fn new() -> Option<Self> {
        if !is_root() {
            skip("only root makes a network with servers for all callers");
            return None;
        }
        let directory = TempDir::new(Caller::Root);
        let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 -subj /CN=web.example.com \
                      -addext 'subjectAltName=DNS:web.example.com' -keyout key.pem -out cert.pem 2>/dev/null && chmod 644 cert.pem && chmod 711 .";
        let made = Command::new("sh").args(["-c", script]).env("PATH", PATH).current_dir(directory.path()).status();
        assert!(made.unwrap().success());
        make_clients(&directory);
        let mut command = Command::new("unshare");
        command.args(["-n", "-m", "--propagation", "private", "--", PYTHON, "-I", "-c", include_str!("servers.py")]);
        command.arg(directory.path()).env("PATH", PATH).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = leaks::spawn(&mut command);
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let absent =
            line.strip_prefix("ready").unwrap_or_else(|| panic!("the servers start: {line:?}")).trim().to_owned();
        let input = process.stdin.take();
        Some(Self { process, input, absent, directory })
    }

    fn run(&self, caller: Caller, rules: &[&str]) -> Run {
        let enter = ["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", self.process.id()), "--".to_owned()];
        let rules = rules.iter().flat_map(|rule| ["--allow-net", rule]);
        let show = |name: &str, at: &str| format!("{}:{at}:ro", text(&self.directory.join(name)));
        let run = Run::new(caller).outside(enter).opts(rules).opts(["--dns", SERVER]);
        let run = run.opts(["-v", &show("cert.pem", "/cert.pem")]);
        let made = ["get", "cargo"].into_iter().filter(|name| self.directory.join(name).exists());
        let run = made.fold(run, |run, name| run.opts(["-v", &show(name, &format!("/{name}"))]));
        if self.directory.join("keys/user").exists() { run.opts(["-v", &show("keys/user", "/user.key")]) } else { run }
    }
}

/// Programs that are not installed for everybody: one of Go, whose resolver is its own, and the cargo that built this test.
fn make_clients(directory: &TempDir) {
    std::fs::write(directory.join("get.go"), GO).unwrap();
    let mut go = Command::new("go");
    go.args(["build", "-o", text(&directory.join("get")), text(&directory.join("get.go"))]).env("GO111MODULE", "off");
    let _ = go.env("PATH", PATH).env("GOCACHE", directory.join("cache")).env("HOME", directory.path()).output();
    let _ = std::fs::copy(env!("CARGO"), directory.join("cargo"));
}

impl Drop for Servers {
    fn drop(&mut self) {
        drop(self.input.take()); // then it ends its servers
        let _ = self.process.wait();
        leaks::forget(&self.process);
    }
}

const GO: &str = r#"package main
import ("fmt"; "io"; "net")
func main() {
	connection, err := net.Dial("tcp", "web.example.com:80")
	if err != nil { panic(err) }
	fmt.Fprintf(connection, "GET /hello HTTP/1.0\r\nHost: web.example.com\r\n\r\n")
	said, _ := io.ReadAll(connection)
	fmt.Println(string(said))
}
"#;

const CARGO: &str = r#"mkdir -p /tmp/p/src; cd /tmp/p; touch src/lib.rs
export CARGO_HOME=/tmp/c CARGO_HTTP_CAINFO=/cert.pem CARGO_REGISTRIES_X_INDEX=sparse+https://web.example.com/crates/
printf '[package]\nname = "p"\nversion = "0.1.0"\n[dependencies]\ntiny = { version = "1", registry = "x" }\n' >Cargo.toml
/cargo vendor -q /tmp/v >/dev/null; cat /tmp/v/tiny/src/lib.rs"#;

const APT: &str = r#"mkdir -p /tmp/a/etc/apt/sources.list.d /tmp/a/var/lib/apt/lists/partial /tmp/a/var/lib/dpkg /tmp/a/var/cache/apt/archives/partial
cd /tmp/a; touch var/lib/dpkg/status; echo "deb [trusted=yes] http://web.example.com/apt ./" >etc/apt/sources.list
apt() { apt-get -q -o Dir=/tmp/a -o Dir::Bin::methods=/usr/lib/apt/methods -o Dir::State::status=/tmp/a/var/lib/dpkg/status -o APT::Sandbox::User= "$@"; }
apt update && apt download tiny && dpkg-deb -x tiny_1.0_all.deb x && cat x/usr/share/tiny/said"#;

const WEBSOCKETS: &str = r#"/usr/bin/python3 -c '
import asyncio, ssl, websockets
async def main():
    context = ssl.create_default_context(cafile="/cert.pem")
    async with websockets.connect("wss://web.example.com:8443", ssl=context) as one:
        await one.send("hello from websockets")
        print((await one.recv()).lower())
asyncio.run(main())'"#;

const ASYNCIO: &str = r#"python3 -c '
import asyncio, ssl
async def main():
    context = ssl.create_default_context(cafile="/cert.pem")
    reader, writer = await asyncio.open_connection("web.example.com", 443, ssl=context)
    writer.write(b"GET /hello HTTP/1.0\r\nHost: web.example.com\r\n\r\n")
    print((await reader.read()).decode())
asyncio.run(main())'"#;

const JAVA: &str = r#"cat >/tmp/Get.java <<'END'
import java.net.URI;
import java.net.http.*;
import java.security.cert.*;
import javax.net.ssl.*;
class Get {
    public static void main(String[] words) throws Exception {
        var store = java.security.KeyStore.getInstance(java.security.KeyStore.getDefaultType());
        store.load(null);
        store.setCertificateEntry("x", CertificateFactory.getInstance("X.509").generateCertificate(new java.io.FileInputStream("/cert.pem")));
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        var context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        var request = HttpRequest.newBuilder(URI.create("https://web.example.com/hello")).build();
        System.out.println(HttpClient.newBuilder().sslContext(context).build().send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
END
java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC /tmp/Get.java"#;

/// The program, the server, a script, and what it must print.
const CLIENTS: &[(&str, &str, &str, &str)] = &[
    ("curl", "nginx", "curl -sS --cacert /cert.pem https://web.example.com/hello", "hello from nginx"),
    ("wget", "nginx", "wget -q -O - --ca-certificate=/cert.pem https://web.example.com/hello", "hello from nginx"),
    (
        "git",
        "nginx",
        "git -c http.sslCAInfo=/cert.pem clone -q https://web.example.com/repo.git /tmp/h && cat /tmp/h/file",
        "hello from git",
    ),
    (
        "ssh",
        "sshd",
        "install -m 600 /user.key /tmp/key && export GIT_SSH_COMMAND='ssh -i /tmp/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR' \
         && git clone -q ssh://root@web.example.com$WWW/repo.git /tmp/s && cat /tmp/s/file",
        "hello from git",
    ),
    (
        "pip",
        "nginx",
        "/usr/bin/python3 -m pip install -q --target /tmp/t --no-cache-dir --disable-pip-version-check --cert /cert.pem \
         --index-url https://web.example.com/simple/ tiny && PYTHONPATH=/tmp/t /usr/bin/python3 -c 'import tiny; print(tiny.said)'",
        "hello from pip",
    ),
    (
        "npm",
        "nginx",
        "cd /tmp && npm install --silent --no-audit --no-fund --cafile /cert.pem --registry https://web.example.com/npm/ tiny \
         && node -e 'console.log(require(\"tiny\"))'",
        "hello from npm",
    ),
    ("psql", "postgresql", "psql -h web.example.com -U postgres -d postgres -Atc 'select 40 + 2'", "42"),
    (
        "redis-cli",
        "redis",
        "redis-cli -h web.example.com set k kept >/dev/null; redis-cli -h web.example.com get k",
        "kept",
    ),
    (
        "node",
        "nginx",
        "NODE_EXTRA_CA_CERTS=/cert.pem node -e 'fetch(\"https://web.example.com/hello\").then(one => one.text()).then(console.log)'",
        "hello from nginx",
    ),
    ("python3", "nginx", ASYNCIO, "hello from nginx"),
    ("java", "nginx", JAVA, "hello from nginx"),
    ("go", "nginx", "GODEBUG=netdns=go /get", "hello from nginx"),
    ("/cargo", "nginx", CARGO, "hello from cargo"),
    ("apt-get", "apt", APT, "hello from apt"),
    ("python3", "websockets", WEBSOCKETS, "hello from websockets"),
];

#[test]
fn programs_reach_real_servers_as_they_are() {
    let Some(servers) = Servers::new() else { return };
    if servers.absent.contains("dnsmasq") {
        return skip(&servers.absent);
    }
    for_each_caller(|caller| {
        for (program, server, script, expected) in CLIENTS {
            if !program.starts_with('/') && !has_program(program) {
                skip_part(program, "it is not installed");
                continue;
            }
            if servers.absent.contains(server) {
                skip_part(program, &servers.absent);
                continue;
            }
            let www = format!("WWW={}", text(&servers.directory.join("www")));
            let rules = ["web.example.com:22,80,443,5432,6379,8443"];
            let run =
                servers.run(caller, &rules).opts(["-e", &www, "-e", "HOME=/tmp"]).cmd(["/bin/bash", "-c", script]);
            let outcome = run.go();
            assert!(outcome.text().contains(expected), "{program}: {outcome}");
            // apt first asks for SRV records of `_http._tcp.NAME`, and goes on without.
            let report = outcome.report();
            let refusals = report["network"]["egress"]["refusals"].as_array().unwrap();
            let is_other = |one: &&serde_json::Value| !one["host"].as_str().unwrap().starts_with("_http._tcp.");
            assert_eq!(refusals.iter().find(is_other), None, "{program}: {outcome}");
        }
    });
}

/// The name server is dnsmasq, and the owner of a name lets it lead inside.
#[test]
fn a_name_that_dnsmasq_leads_inside_is_refused() {
    let Some(servers) = Servers::new() else { return };
    if !servers.absent.is_empty() && (servers.absent.contains("dnsmasq") || servers.absent.contains("nginx")) {
        return skip(&servers.absent);
    }
    for_each_caller(|caller| {
        let script = "curl -sS -m 8 http://inside.example.com/; curl -sS -m 8 http://inside6.example.com/; echo end";
        let outcome = servers.run(caller, &["*.example.com"]).sh(script).go().expect(0);
        assert_eq!(outcome.text(), "end\n", "{outcome}");
        for name in ["inside", "inside6"] {
            let reason = refusal(&outcome, &format!("{name}.example.com")).unwrap_or_default();
            assert!(reason.starts_with("address_refused"), "{name}: {reason}");
        }
        let outcome = servers.run(caller, &["*.example.com", "10.0.0.5:80"]).sh(script).go().expect(0);
        assert!(outcome.text().starts_with("inner\n"), "the control: {outcome}");
    });
}
