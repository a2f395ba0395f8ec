"""Real servers in a network and mount namespace of the test's own: dnsmasq, nginx with TLS, sshd with git, PostgreSQL, Redis,
websockets, and indexes for pip, npm, cargo and apt behind nginx. Prints "ready", and the servers that could not be started. Ends with its input."""

import base64
import ctypes
import hashlib
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import zipfile

WEB, RESOLVER, INNER = "203.0.113.20", "203.0.113.53", "10.0.0.5"
BASE = pathlib.Path(sys.argv[1])
PATH = os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
started, absent = [], []


def run(*words, **options):
    return subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


def start(name, *words, **options):
    log = open(BASE / f"{name}.log", "wb")
    started.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **options))


def waits(name, address, port):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            socket.create_connection((address, port), 5).close()
            return
        except OSError:
            time.sleep(0.05)
    absent.append(f"{name}: does not listen")


def has(name, program):
    found = shutil.which(program)
    if not found:
        absent.append(f"{name}: {program} is not installed")
    return found


ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
run("ip", "link", "set", "lo", "up")
for address in [WEB, RESOLVER, INNER]:
    run("ip", "addr", "add", f"{address}/32", "dev", "lo")
run("mount", "-t", "tmpfs", "run", "/run")
pathlib.Path("/run/sshd").mkdir(mode=0o755)

# --- What nginx serves: a page, a repository, a wheel and a package -----------------------------------------------------------
www = BASE / "www"
(www / "simple/tiny").mkdir(parents=True)
(www / "npm").mkdir()
(www / "hello").write_text("hello from nginx\n")
wheel = www / "simple/tiny/tiny-1.0-py3-none-any.whl"
with zipfile.ZipFile(wheel, "w") as archive:
    archive.writestr("tiny.py", "said = 'hello from pip'\n")
    archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    archive.writestr("tiny-1.0.dist-info/RECORD", "")
(www / "simple/tiny/index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
package = io.BytesIO()
with tarfile.open(fileobj=package, mode="w:gz") as archive:
    for name, text in {"package.json": '{"name":"tiny","version":"1.0.0","main":"index.js"}', "index.js": "module.exports='hello from npm'"}.items():
        entry = tarfile.TarInfo(f"package/{name}")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text.encode()))
(www / "npm/tiny-1.0.0.tgz").write_bytes(package.getvalue())
integrity = "sha512-" + base64.b64encode(hashlib.sha512(package.getvalue()).digest()).decode()
dist = {"tarball": "https://web.example.com/npm/tiny-1.0.0.tgz", "integrity": integrity}
version = {"name": "tiny", "version": "1.0.0", "main": "index.js", "dist": dist}
(www / "npm/tiny").write_text(json.dumps({"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}))

crate = io.BytesIO()
with tarfile.open(fileobj=crate, mode="w:gz") as archive:
    for name, text in {"Cargo.toml": '[package]\nname = "tiny"\nversion = "1.0.0"\n', "src/lib.rs": "// hello from cargo\n"}.items():
        entry = tarfile.TarInfo(f"tiny-1.0.0/{name}")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text.encode()))
(www / "crates/ti/ny").mkdir(parents=True)
(www / "crates/dl/tiny/1.0.0").mkdir(parents=True)
(www / "crates/config.json").write_text('{"dl": "https://web.example.com/crates/dl"}')
(www / "crates/dl/tiny/1.0.0/download").write_bytes(crate.getvalue())
line = {"name": "tiny", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(crate.getvalue()).hexdigest(), "features": {}, "yanked": False}
(www / "crates/ti/ny/tiny").write_text(json.dumps(line) + "\n")
if has("apt", "dpkg-deb"):
    (BASE / "deb/DEBIAN").mkdir(parents=True)
    (BASE / "deb/usr/share/tiny").mkdir(parents=True)
    control = "Package: tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: x <x@example.com>\nDescription: x\n"
    (BASE / "deb/DEBIAN/control").write_text(control)
    (BASE / "deb/usr/share/tiny/said").write_text("hello from apt\n")
    (www / "apt").mkdir()
    run("dpkg-deb", "-b", str(BASE / "deb"), str(www / "apt/tiny.deb"))
    deb = (www / "apt/tiny.deb").read_bytes()
    (www / "apt/Packages").write_text(f"{control}Filename: ./tiny.deb\nSize: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\n")
if has("git", "git"):
    work, git = BASE / "work", ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "safe.directory=*"]
    work.mkdir()
    (work / "file").write_text("hello from git\n")
    run(*git, "init", "-q", "-b", "main", cwd=work)
    run(*git, "add", "file", cwd=work)
    run(*git, "commit", "-q", "-m", "one", cwd=work)
    run(*git, "clone", "-q", "--bare", str(work), str(www / "repo.git"))
    run(*git, "update-server-info", cwd=www / "repo.git")

# --- Servers ------------------------------------------------------------------------------------------------------------------
if has("dnsmasq", "dnsmasq"):
    start("dnsmasq", "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root", "--pid-file=",
          f"--listen-address={RESOLVER}", "--bind-interfaces", f"--address=/web.example.com/{WEB}", f"--address=/inside.example.com/{INNER}",
          "--address=/inside6.example.com/::ffff:10.0.0.5", "--local=/example.com/")
    waits("dnsmasq", RESOLVER, 53)
if has("nginx", "nginx"):
    (BASE / "nginx.conf").write_text(f"""
daemon off; user root; pid {BASE}/nginx.pid; error_log {BASE}/nginx.error; events {{}}
http {{ access_log off; client_body_temp_path {BASE}/t1; proxy_temp_path {BASE}/t2; fastcgi_temp_path {BASE}/t3; uwsgi_temp_path {BASE}/t4; scgi_temp_path {BASE}/t5;
  types {{ text/html html; }}
  server {{ listen {INNER}:80; location / {{ return 200 "inner\\n"; }} }}
  server {{ listen {WEB}:80; listen {WEB}:443 ssl; server_name web.example.com; ssl_certificate {BASE}/cert.pem; ssl_certificate_key {BASE}/key.pem; root {www}; }} }}
""")
    start("nginx", "nginx", "-c", str(BASE / "nginx.conf"))
    waits("nginx", WEB, 443)
if has("sshd", "sshd") and has("ssh", "ssh-keygen"):
    keys = BASE / "keys"
    keys.mkdir()
    for name in ("host", "user"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name))
    (keys / "user").chmod(0o644)
    (BASE / "sshd.conf").write_text(f"Port 22\nListenAddress {WEB}\nHostKey {keys}/host\nAuthorizedKeysFile {keys}/user.pub\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n")
    start("sshd", shutil.which("sshd"), "-D", "-e", "-f", str(BASE / "sshd.conf"))
    waits("sshd", WEB, 22)
found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
if found:
    data = BASE / "postgres"
    data.mkdir()
    shutil.chown(data, "postgres", "postgres")
    become = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--"]
    run(*become, str(found[-1].with_name("initdb")), "-D", str(data), "-A", "trust", "-N", "--no-locale", cwd="/")
    with open(data / "pg_hba.conf", "a") as rules:
        rules.write("host all all 0.0.0.0/0 trust\n")
    start("postgresql", *become, str(found[-1]), "-D", str(data), "-h", WEB, "-k", "", "-c", "fsync=off", cwd="/")
    waits("postgresql", WEB, 5432)
else:
    absent.append("postgresql: postgres is not installed")
if has("redis", "redis-server"):
    start("redis", "redis-server", "--bind", WEB, "--protected-mode", "no", "--save", "", "--dir", str(BASE))
    waits("redis", WEB, 6379)
WEBSOCKETS = """
import asyncio, ssl, sys, websockets
async def serve(one):
    async for said in one: await one.send(said.upper())
async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1] + "/cert.pem", sys.argv[1] + "/key.pem")
    async with websockets.serve(serve, sys.argv[2], 8443, ssl=context): await asyncio.Future()
asyncio.run(main())
"""
if subprocess.run(["/usr/bin/python3", "-c", "import websockets"], stderr=subprocess.DEVNULL).returncode == 0:
    start("websockets", "/usr/bin/python3", "-I", "-c", WEBSOCKETS, str(BASE), WEB)
    waits("websockets", WEB, 8443)
else:
    absent.append("websockets: python3-websockets is not installed")

print("ready", "; ".join(absent), flush=True)
sys.stdin.read()
for server in started:
    os.killpg(server.pid, signal.SIGKILL)
try:
    while True:
        os.waitpid(-1, 0)  # also what the servers leave
except ChildProcessError:
    pass
