"""Podman as root, and without root (rootless.py), with separate storage, runtime directory and events."""

import json
import os
import shutil
import socket

import scenario
from docker import DOCKERFILE, LOOP, cgroup_value
from scenario import Failed, Scenarios, eventually, expect, on_terminal, run, version

scenarios = Scenarios()

# Podman 5 prints a warning about cgroup v1 before its output.
QUIET = {"PODMAN_IGNORE_CGROUPSV1_WARNING": "1"}

# Images without a registry name; nothing is pulled.
CONF = """[containers]
apparmor_profile = ""
default_ulimits = []
[engine]
runtime_supports_json = ["runc", "stockade"]
# Spelled both ways by podman: without the s up to 4.
runtime_supports_nocgroup = ["stockade"]
runtime_supports_nocgroups = ["stockade"]
[engine.runtimes]
runc = ["{control}"]
stockade = ["{program}"]
[network]
"""


class Engine(scenario.Engine):
    """podman, with an image `bb`."""

    name = "podman"
    scenarios = scenarios
    rootless = False
    driver = ["--storage-driver", "overlay"]
    # Root of this machine may be unable to raise its limits, which podman does by default.
    limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]

    def up(self):
        self.dir = self.house.room(self.name)
        self.house.adopt_user()
        self.prepare()
        self.programs = {}
        self.use("runc", shutil.which("runc") or "/nowhere")
        self.podman("import", "--change", "ENV PATH=/bin", self.house.tar, "localhost/bb", timeout=120)

    def prepare(self):
        """The common part of every command line."""
        os.makedirs(f"{self.dir}/conf", exist_ok=True)
        with open(f"{self.dir}/conf/policy.json", "w") as file:
            file.write('{"default":[{"type":"insecureAcceptAnything"}]}')
        self.environment = os.environ | QUIET | {"CONTAINERS_CONF": f"{self.dir}/conf/containers.conf"}
        if not self.rootless and self.house.systemd:
            self.manager = "systemd"
        else:
            self.manager = "cgroupfs"

    def argv(self):
        return ["podman", "--root", f"{self.dir}/root", "--runroot", f"{self.dir}/run", "--tmpdir", f"{self.dir}/tmp", *self.driver,
                "--cgroup-manager", self.manager, "--events-backend", "file", "--network-config-dir", f"{self.dir}/net",
                "--runtime", self.runtime]

    def use(self, runtime, program):
        super().use(runtime, program)
        self.programs[runtime] = program
        with open(f"{self.dir}/conf/containers.conf", "w") as file:
            file.write(CONF.format(control=self.programs["runc"], program=self.programs.get("stockade", "/nowhere")))
        os.chmod(f"{self.dir}/conf/containers.conf", 0o644)

    def podman(self, *words, before=(), **rest):
        return run([*self.argv(), *before, *words], env=self.environment, **rest)

    def remove(self, name):
        self.podman("rm", "-f", "-t", "0", "-v", name, status=None)

    def run(self, *words, network="none", **rest):
        return self.podman("run", "--rm", "--network", network, *self.limits, *words, **rest)

    def stay(self, *words, network="none", command=("sh", "-c", LOOP)):
        name = self.fresh()
        net = [] if network is None else ["--network", network]
        self.podman("run", "-d", "--name", name, *net, *self.limits, *words, "bb", *command)
        if command == ("sh", "-c", LOOP):
            eventually("the container starts", lambda: "started" in self.podman("logs", name))
        return name

    def inspect(self, name, what):
        return self.podman("inspect", "-f", "{{" + what + "}}", name).strip()

    def terminal(self, words, dialogue, status):
        return on_terminal([*self.argv(), *words], dialogue, status, env=self.environment)

    def versions(self):
        return [version(["podman", "--version"]), version(["conmon", "--version"]), "cgroup v2" if self.house.cgroup2 else "cgroup v1",
                f"{self.manager} cgroups"]


# --- As root and without ----------------------------------------------------------------------------------------------
both = Scenarios()


@both.add("run: output and exit status")
def _(p):
    p.run("bb", "sh", "-c", "id; exit 3", status=3, says="uid=0")


@both.add("run: a program that is not there, is not executable")
def _(p):
    p.run("bb", "nonsense", status=127, says="not found")
    p.run("bb", "/etc/passwd", status=126, says="ermission denied")


@both.add("run --runtime by path")
def _(p):
    p.run("--cgroups", "enabled", "bb", "true", before=("--runtime", p.program))


@both.add("run -i: standard input")
def _(p):
    p.run("-i", "bb", "cat", stdin="over there\n", says="over there")


@both.add("run -it: a terminal, its size, an exit status")
def _(p):
    p.terminal(["run", "--rm", "-it", "--network", "none", *p.limits, "bb", "sh"],
               [("# ", "tty; stty size\n"), ("33 99", "trap 'exit 7' INT; echo wai\\t; sleep 20\n"), ("wait", "\x03")], 7)


@both.add("run -d, logs, wait, inspect")
def _(p):
    name = p.stay(command=("sh", "-c", "echo out; echo err >&2; exit 6"))
    p.podman("wait", name, says="6")
    p.podman("logs", name, says=("out", "err"))
    expect(p.inspect(name, ".OCIRuntime") == p.runtime, f"another runtime ran it: {p.inspect(name, '.OCIRuntime')}")


@both.add("create, init, start --attach")
def _(p):
    name = p.fresh()
    p.podman("create", "--name", name, "--network", "none", *p.limits, "bb", "sh", "-c", "echo ran; exit 4")
    p.podman("init", name)
    expect(p.inspect(name, ".State.Status") in ("initialized", "created"), "it is not created")
    p.podman("start", "--attach", name, status=4, says="ran")


@both.add("exec: status, user, environment, -i, -it")
def _(p):
    name = p.stay("-e", "A=1")
    p.podman("exec", name, "sh", "-c", "echo inside $A; exit 4", status=4, says="inside 1")
    p.podman("exec", "-u", "1000:1001", name, "id", says="uid=1000 gid=1001")
    p.podman("exec", "-i", name, "cat", stdin="handed in", says="handed in")
    p.podman("exec", name, "nonsense", status=127, says="not found")
    p.terminal(["exec", "-it", name, "sh"], [("# ", "tty; exit 5\n"), ("/dev/pts/", "")], 5)


@both.add("top, ps")
def _(p):
    name = p.stay()
    p.podman("top", name, says="sleep")
    p.podman("ps", says=name)


@both.add("stop, kill, restart")
def _(p):
    name = p.stay()
    p.podman("stop", name)
    expect(p.inspect(name, ".State.ExitCode") == "9", "another exit code")
    p.podman("start", name)
    eventually("it starts again", lambda: p.podman("logs", name).count("started") > 1)
    p.podman("kill", "-s", "USR1", name)
    eventually("the signal arrives", lambda: "usr1" in p.podman("logs", name))
    p.podman("restart", "-t", "2", name)
    p.podman("kill", name)
    eventually("it ends", lambda: p.inspect(name, ".State.Status") == "exited")
    expect(p.inspect(name, ".State.ExitCode") == "137", "another exit code")


@both.add("--restart on-failure:2")
def _(p):
    name = p.fresh()
    p.podman("run", "-d", "--name", name, "--restart", "on-failure:2", "--network", "none", *p.limits, "bb", "false")
    eventually("it is given up", lambda: p.inspect(name, ".RestartCount") == "2" and p.inspect(name, ".State.Status") == "exited", 30)


@both.add("--read-only, --tmpfs, --mount, --volume")
def _(p):
    shared = p.house.room("shared")
    os.chmod(shared, 0o777)
    p.run("--read-only", "bb", "touch", "/x", status=1, says="Read-only file system")
    p.run("--tmpfs", "/x:size=1m,mode=700", "bb", "sh", "-c", "df -k /x && stat -c %a /x", says=("1024", "700"))
    p.run("--mount", f"type=bind,src={shared},dst=/shared,ro", "bb", "touch", "/shared/x", status=1, says="Read-only")
    p.run("-v", f"{shared}:/deep/shared", "bb", "touch", "/deep/shared/by-podman")
    expect(os.path.exists(f"{shared}/by-podman"), "the host does not see it")
    os.remove(f"{shared}/by-podman")
    p.run("-v", f"volume-{p.runtime}:/var/data", "bb", "cat", "/var/data/file", says="from the image")
    p.podman("volume", "rm", "-f", f"volume-{p.runtime}")


@both.add("--volume with an overlay (:O)")
def _(p):
    shared = p.house.room("shared")
    with open(f"{shared}/of-host", "w") as file:
        file.write("of the host\n")
    p.run("-v", f"{shared}:/o:O", "bb", "sh", "-c", "cat /o/of-host && touch /o/changed", says="of the host")
    expect(not os.path.exists(f"{shared}/changed"), "the host was changed")


@both.add("--cap-drop, --cap-add, no-new-privileges")
def _(p):
    p.run("--cap-drop", "ALL", "bb", "grep", "CapEff", "/proc/self/status", says="0000000000000000")
    p.run("--cap-drop", "ALL", "--cap-add", "CHOWN", "bb", "grep", "CapBnd", "/proc/self/status", says="0000000000000001")
    p.run("--security-opt", "no-new-privileges", "bb", "grep", "NoNewPrivs", "/proc/self/status", says="1")


@both.add("--security-opt seccomp=FILE, the default, unconfined")
def _(p):
    profile = f"{p.dir}/profile.json"
    with open(profile, "w") as file:
        json.dump({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}, file)
    os.chmod(profile, 0o644)
    p.run("--security-opt", f"seccomp={profile}", "bb", "mkdir", "/x", status=1, says="Operation not permitted")
    p.run("bb", "grep", "Seccomp:", "/proc/self/status", says="2")
    p.run("--security-opt", "seccomp=unconfined", "bb", "grep", "Seccomp:", "/proc/self/status", says="0")


@both.add("--privileged")
def _(p):
    p.run("--privileged", "bb", "sh", "-c", "mount -t tmpfs none /tmp && grep Seccomp: /proc/self/status", says="Seccomp:\t0")


@both.add("--device")
def _(p):
    p.run("--device", "/dev/full:/dev/mine", "bb", "ls", "/dev/mine")
    p.run("--device", "/dev/full:/dev/mine", "bb", "sh", "-c", "head -c 1 /dev/mine | wc -c", says="1")


@both.add("--user: names, ids, groups")
def _(p):
    p.run("--user", "worker", "bb", "id", says=("uid=1234(worker)", "gid=4321"))
    p.run("--user", "5:6", "--group-add", "7", "bb", "id", says=("uid=5", "gid=6", "7"))


@both.add("--hostname, --init, --pid host, --uts host, --shm-size, --sysctl, --umask, --timezone")
def _(p):
    p.run("--hostname", "named", "bb", "hostname", says="named")
    p.run("--shm-size", "2m", "bb", "df", "-k", "/dev/shm", says="2048")
    p.run("--umask", "0027", "bb", "sh", "-c", "umask", says="0027")
    p.run("--sysctl", "net.ipv4.ip_forward=1", "bb", "cat", "/proc/sys/net/ipv4/ip_forward", says="1")
    p.run("--pid", "host", "bb", "ps", says="podman")


@both.add("--init")
def _(p):
    p.run("--init", "bb", "ps", says="catatonit" if "init" not in p.run("--init", "bb", "ps") else "init")


@both.add("--network none, host")
def _(p):
    p.run("bb", "sh", "-c", "ip -o link show up", says="lo", lacks="eth0")
    p.run("bb", "readlink", "/proc/self/ns/net", network="host", says=os.readlink("/proc/self/ns/net"))


@both.add("healthcheck run")
def _(p):
    name = p.stay("--health-cmd", "test -e /healthy", "--health-interval", "disable")
    p.podman("healthcheck", "run", name, status=1)
    p.podman("exec", name, "touch", "/healthy")
    p.podman("healthcheck", "run", name)


@both.add("--userns keep-id, --uidmap")
def _(p):
    if p.rootless:
        p.run("--userns", "keep-id", "bb", "id", "-u", says=str(p.uid))
        p.run("--uidmap", "0:1:5000", "bb", "cat", "/proc/self/uid_map", says="5000")
    else:
        p.run("--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536", "bb", "cat", "/proc/self/uid_map", says="100000")


@both.add("--userns auto")
def _(p):
    out = p.run("--userns", "auto:size=4096", "bb", "sh", "-c", "cat /proc/self/uid_map; touch /x; stat -c %u /bin", says="4096")
    expect(out.strip().splitlines()[-1] == "0", f"/bin is not its root's: {out}")
    if not p.rootless:
        expect(out.split()[1] >= "3000000", f"not of the range for it: {out}")


@both.add("pods: two containers share network and names")
def _(p):
    pod = f"pod-{p.runtime}"
    p.podman("pod", "create", "--name", pod, "--network", "none", *pod_options(p), timeout=120)
    try:
        p.podman("run", "-d", "--name", f"{pod}-one", "--pod", pod, *p.limits, "bb", "sh", "-c",
                 "while :; do echo served | nc -l -p 8000; done")
        eventually("one reaches the other", lambda: "served" in p.podman(
            "run", "--rm", "--pod", pod, *p.limits, "bb", "sh", "-c", "nc 127.0.0.1 8000 </dev/null", status=None))
        p.podman("pod", "ps", says=pod)
        p.podman("pod", "stop", "-t", "1", pod)
        p.podman("pod", "start", pod)
        p.podman("pod", "inspect", pod, says="Running")
    finally:
        p.podman("pod", "rm", "-f", "-t", "0", pod, status=None)


def pod_options(p):
    """Podman's pods need a separate cgroup, which may not be available."""
    return ["--share-parent=false"] if p.rootless else []


KUBE = """apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers:
  - name: worker
    image: localhost/bb:latest
    imagePullPolicy: Never
    command: ["sh", "-c", "echo played as $(id -u) $A; while :; do sleep 0.1; done"]
    env: [{{name: A, value: kube}}, {{name: PATH, value: /bin}}]
    securityContext: {{runAsUser: 1234, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false}}
{resources}
"""


@both.add("kube play, kube down")
def _(p):
    name = f"kube-{p.runtime}"
    file = f"{p.dir}/{name}.yaml"
    with open(file, "w") as out:
        resources = "" if p.rootless else "    resources: {limits: {memory: 64Mi}}"
        out.write(KUBE.format(name=name, resources=resources))
    os.chmod(file, 0o644)
    try:
        p.podman("kube", "play", file, timeout=120)
        eventually("it runs", lambda: "played as 1234 kube" in p.podman("logs", f"{name}-worker"))
        p.podman("exec", f"{name}-worker", "touch", "/x", status=1, says="Read-only")
    finally:
        p.podman("kube", "down", file, status=None)
        p.podman("pod", "rm", "-f", "-t", "0", name, status=None)


@both.add("build with RUN steps")
def _(p):
    file = f"{p.dir}/Containerfile"
    with open(file, "w") as out:
        out.write(DOCKERFILE.replace("FROM bb", "FROM localhost/bb"))
    os.chmod(file, 0o644)
    p.podman("build", "--no-cache", "--pull=never", "--network", "none", "--isolation", "oci", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024",
             "--signature-policy", f"{p.dir}/conf/policy.json", "-t", f"built-{p.runtime}", "-f", file, p.house.room("empty"), timeout=120)
    p.run(f"built-{p.runtime}", says=("built 1\n0", "1234"))
    p.podman("rmi", "-f", f"built-{p.runtime}")


@both.add("cp, diff, commit, mount")
def _(p):
    name = p.stay()
    p.podman("exec", name, "sh", "-c", "echo changed >/changed")
    p.podman("diff", name, says="A /changed")
    p.podman("cp", f"{name}:/changed", f"{p.dir}/tmp/copied")
    p.podman("cp", f"{p.dir}/tmp/copied", f"{name}:/back")
    p.podman("exec", name, "cat", "/back", says="changed")


@both.add("--sdnotify container: readiness goes through", long=True)
def _(p):
    path = f"{p.dir}/tmp/notify-{p.runtime}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(path)
        os.chmod(path, 0o777)
        notified.settimeout(10 * scenario.PATIENCE)
        name = p.fresh()
        # busybox cannot send a datagram to a socket by name, so only the variable is checked.
        run([*p.argv(), "run", "--name", name, "--sdnotify", "conmon", "-d", "--network", "none", *p.limits, "bb", "sleep", "100"],
            env=p.environment | {"NOTIFY_SOCKET": path})
        said = b""
        while b"READY=1" not in said:
            try:
                said += notified.recv(4096) + b"\n"
            except TimeoutError:
                raise Failed(f"no readiness: {said}") from None
        expect(b"MAINPID" in said, f"no main pid: {said}")


@both.add("--preserve-fds", long=True)
def _(p):
    reader, writer = os.pipe()
    os.write(writer, b"by descriptor")
    os.close(writer)
    try:
        command = ["sh", "-c", 'exec 3<&"$0"; exec "$@"', str(reader), *p.argv(), "run", "--rm", "--network", "none", "--preserve-fds", "1", *p.limits,
                   "bb", "sh", "-c", "cat <&3"]
        run(command, env=p.environment, says="by descriptor", pass_fds=[reader])
    finally:
        os.close(reader)


@both.add("--cgroups disabled")
def _(p):
    if p.runtime == "runc":
        # Podman does not request this from runc, and says so.
        p.run("--cgroups", "disabled", "bb", "true", status=125, says="not compatible with NoCgroups")
    else:
        p.run("--cgroups", "disabled", "bb", "sh", "-c", "cat /proc/self/cgroup; exit 3", status=3)


scenarios += both


# --- As root only: with cgroups and networks --------------------------------------------------------------------------
@scenarios.add("pause, unpause")
def _(p):
    name = p.stay()
    p.podman("pause", name)
    expect(p.inspect(name, ".State.Status") == "paused", "it is not paused")
    p.podman("unpause", name)
    p.podman("exec", name, "true")


@scenarios.add("--memory, --cpus, --pids-limit: in the cgroup; update")
def _(p):
    name = p.stay("-m", "64m", "--cpus", "0.5", "--pids-limit", "50")
    pid = p.inspect(name, ".State.Pid")
    expect(cgroup_value(pid, "memory.max", ("memory", "memory.limit_in_bytes")) == str(64 << 20), "memory")
    expect(cgroup_value(pid, "cpu.max", ("cpu", "cpu.cfs_quota_us")).split()[0] == "50000", "cpu")
    expect(cgroup_value(pid, "pids.max", ("pids", "pids.max")) == "50", "pids")
    p.podman("update", "-m", "80m", name)
    expect(cgroup_value(pid, "memory.max", ("memory", "memory.limit_in_bytes")) == str(80 << 20), "memory after the update")


@scenarios.add("--memory: out of memory, inspect OOMKilled")
def _(p):
    name = p.stay("-m", "20m", command=("sh", "-c", "sleep 1; x=a; while :; do x=$x$x; done"))
    p.podman("wait", name, says="137")
    if p.house.cgroup2:
        expect(p.inspect(name, ".State.OOMKilled") == "true", "not by its record")


@scenarios.add("stats")
def _(p):
    name = p.stay("-m", "64m")
    p.podman("stats", "--no-stream", name, says="67.11MB" if not p.house.cgroup2 else "MB")


@scenarios.add("--cgroups no-conmon, split")
def _(p):
    p.run("--cgroups", "no-conmon", "bb", "true")
    p.run("--cgroups", "split", "bb", "true")


@scenarios.add("--cgroup-parent, --cgroupns")
def _(p):
    parent = "engines.slice" if p.house.systemd else "/engines"
    name = p.stay("--cgroup-parent", parent)
    with open(f"/proc/{p.inspect(name, '.State.Pid')}/cgroup") as file:
        text = file.read()
    expect("/engines" in text, f"not below it: {text}")
    p.run("--cgroupns", "private", "bb", "cat", "/proc/self/cgroup", says=":/\n")


@scenarios.add("--systemd=always: its hierarchy, below a read-only directory of cgroups")
def _(p):
    p.run("--systemd=always", "bb", "sh", "-c", "grep /sys/fs/cgroup /proc/mounts", says="/systemd" if not p.house.cgroup2 else "cgroup")


@scenarios.add("--network bridge: two reach each other")
def _(p):
    server = p.stay(network="bridge", command=("sh", "-c", "while :; do echo served | nc -l -p 8000; done"))
    address = p.inspect(server, ".NetworkSettings.IPAddress")
    expect(address, "it has no address")
    eventually("one reaches the other", lambda: "served" in p.run("bb", "sh", "-c", f"nc {address} 8000 </dev/null", network="bridge", status=None))


@scenarios.add("--network container:, --pid container:")
def _(p):
    name = p.stay(command=("sleep", "987"))
    p.podman("run", "--rm", "--network", f"container:{name}", "--pid", f"container:{name}", *p.limits, "bb", "ps", says="sleep 987")
