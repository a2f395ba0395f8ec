"""Docker: a dockerd that the test starts. The runtime under test is its default runtime, and also has a name."""

import json
import os
import shutil
import socket
import subprocess
import threading

import scenario
from house import read
from scenario import Absent, Daemon, Failed, Scenarios, eventually, expect, on_terminal, run, version

# Reports readiness, exits with 9 on SIGTERM, prints on SIGUSR1, and otherwise stays.
LOOP = 'trap "exit 9" TERM; trap "echo usr1" USR1; echo started; while :; do sleep 0.1; done'
CLIENT = next((path for path in ("/usr/bin/docker",) if os.path.exists(path)), "docker")

scenarios = Scenarios()


class Engine(scenario.Engine):
    """dockerd, its client, and an image `bb`."""

    name = "docker"
    scenarios = scenarios
    swarm = False

    def up(self):
        for program in ("dockerd", CLIENT):
            if not shutil.which(program):
                raise Absent(f"not installed: {program}")
        self.dir = self.house.room(self.name)
        self.socket = f"{self.dir}/sock"
        self.daemon = None
        self.config = {"runtimes": {}}
        if self.house.systemd:
            self.config["exec-opts"] = ["native.cgroupdriver=systemd"]
        self.write_config()
        self.argv = ["dockerd", "--config-file", f"{self.dir}/config.json", "--data-root", f"{self.dir}/data",
                     "--exec-root", f"{self.dir}/exec", "--pidfile", f"{self.dir}/pid", "-H", f"unix://{self.socket}"]
        # Without a firewall, containers on one bridge still reach each other.
        if not can("iptables -t nat -N stockade"):
            self.argv += ["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
        if not can("ip link add stockade0 type bridge && ip link add stockade1 type veth peer name stockade2"):
            self.argv += ["--bridge=none"]
        self.start()
        self.docker("import", self.house.tar, "bb")

    def start(self):
        self.daemon = Daemon(self.argv, f"{self.dir}/log")
        self.daemon.wait_for(self.alive)

    def alive(self):
        return os.path.exists(self.socket) and run([CLIENT, "-H", f"unix://{self.socket}", "version"], timeout=20)

    def write_config(self):
        with open(f"{self.dir}/config.json", "w") as file:
            json.dump(self.config, file)

    def use(self, runtime, program):
        super().use(runtime, program)
        # runc is always known; another program by that name would be refused.
        if runtime != "runc":
            self.config["runtimes"][runtime] = {"path": program}
        self.config["default-runtime"] = runtime
        self.write_config()
        self.daemon.reload()
        eventually("the default runtime changes", lambda: self.docker("info", "-f", "{{.DefaultRuntime}}").strip() == runtime)

    def down(self):
        if getattr(self, "daemon", None):
            self.daemon.stop()

    def remove(self, name):
        self.docker("rm", "-f", "-v", name, status=None)

    def docker(self, *words, **rest):
        return run([CLIENT, "-H", f"unix://{self.socket}", *words], **rest)

    def run(self, *words, network="none", **rest):
        """docker run --rm, without a network."""
        return self.docker("run", "--rm", "--network", network, *words, **rest)

    def stay(self, *words, network="none", command=("sh", "-c", LOOP)):
        """Starts a long-running container. Returns its name."""
        name = self.fresh()
        self.docker("run", "-d", "--name", name, "--network", network, *words, "bb", *command)
        if command == ("sh", "-c", LOOP):
            eventually("the container starts", lambda: "started" in self.docker("logs", name))
        return name

    def inspect(self, name, what):
        return self.docker("inspect", "-f", "{{" + what + "}}", name).strip()

    def terminal(self, words, dialogue, status):
        return on_terminal([CLIENT, "-H", f"unix://{self.socket}", *words], dialogue, status)

    def cgroup_value(self, name, v2, v1):
        """A file of a container's own cgroup, by the path that its first process sees: relative to the mount."""
        pid = self.inspect(name, ".State.Pid")
        return cgroup_value(pid, v2, v1)

    def versions(self):
        return [self.docker("version", "-f", "Docker {{.Server.Version}}").strip(), version(["containerd", "--version"]),
                version(["runc", "--version"]), "cgroup v2" if self.house.cgroup2 else "cgroup v1"]


def cgroup_value(pid, v2, v1):
    """A file in the cgroup of a process: `v2`, or on v1 the pair of controller and file."""
    try:
        text = read(f"/proc/{pid}/cgroup")
    except OSError as error:
        raise Failed(f"process {pid} is gone: {error}") from None
    lines = text.splitlines()
    found = {line.split(":")[1]: line.split(":", 2)[2] for line in lines}
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        path = f"/sys/fs/cgroup{found['']}/{v2}"
    else:
        controller, file = v1
        names = next(names for names in found if controller in names.split(","))
        base = f"/sys/fs/cgroup/{names}" if os.path.isdir(f"/sys/fs/cgroup/{names}") else f"/sys/fs/cgroup/{controller}"
        path = f"{base}{found[names]}/{file}"
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError as error:
        raise Failed(f"{path}: {error.strerror}") from None


def can(probe):
    """Whether a script succeeds in a network namespace: some kernels lack features."""
    return subprocess.run(["unshare", "-n", "sh", "-c", probe], capture_output=True).returncode == 0


# --- Running and exiting ----------------------------------------------------------------------------------------------
@scenarios.add("run: output and exit status")
def _(d):
    d.run("bb", "sh", "-c", "id; exit 3", status=3, says="uid=0")


@scenarios.add("run --runtime by name")
def _(d):
    d.run("--runtime", d.runtime, "bb", "true")


@scenarios.add("run: a program that is not there, is not executable")
def _(d):
    d.run("bb", "nonsense", status=127, says="executable file not found")
    d.run("bb", "/nonsense", status=127, says="no such file or directory")
    d.run("bb", "/etc/passwd", status=126, says="permission denied")


@scenarios.add("run -i: standard input")
def _(d):
    d.run("-i", "bb", "cat", stdin="over there\n", says="over there")


@scenarios.add("run -it: a terminal, its size, an exit status")
def _(d):
    d.terminal(["run", "--rm", "-it", "--network", "none", "bb", "sh"],
               [("# ", "tty; stty size\n"), ("33 99", "trap 'exit 7' INT; echo wai\\t; sleep 20\n"), ("wait", "\x03")], 7)


@scenarios.add("run -it: detach and attach")
def _(d):
    name = d.fresh()
    d.terminal(["run", "-it", "--name", name, "--network", "none", "bb", "sh"], [("# ", "echo o\\ne\n"), ("one", "\x10\x11")], 0)
    expect(d.inspect(name, ".State.Status") == "running", "the container did not go on")
    d.terminal(["attach", name], [("", "\n"), ("# ", "exit 5\n")], 5)


@scenarios.add("run -d, logs, wait")
def _(d):
    name = d.stay(command=("sh", "-c", "echo out; echo err >&2; exit 6"))
    d.docker("wait", name, says="6")
    d.docker("logs", name, says=("out", "err"))


@scenarios.add("run -w: the directory is made")
def _(d):
    d.run("-w", "/new/dir", "bb", "pwd", says="/new/dir")


@scenarios.add("create, start -a")
def _(d):
    name = d.fresh()
    d.docker("create", "--name", name, "--network", "none", "bb", "sh", "-c", "echo ran; exit 4")
    for _ in range(2):
        d.docker("start", "-a", name, status=4, says="ran")


@scenarios.add("top, inspect")
def _(d):
    name = d.stay()
    d.docker("top", name, says="sleep")
    expect(d.inspect(name, ".HostConfig.Runtime") == d.runtime, "another runtime ran it")
    pid = int(d.inspect(name, ".State.Pid"))
    expect(os.path.exists(f"/proc/{pid}/ns/mnt") and os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"), "its pid is not one")


@scenarios.add("ten at once", long=True)
def _(d):
    scenario.parallel([lambda: d.run("bb", "true") for _ in range(10)])


# --- Commands in a running container ----------------------------------------------------------------------------------
@scenarios.add("exec: status, user, environment, directory")
def _(d):
    name = d.stay("-e", "A=1")
    d.docker("exec", name, "sh", "-c", "echo inside $A; exit 4", status=4, says="inside 1")
    d.docker("exec", "-u", "1000:1001", name, "id", says="uid=1000 gid=1001")
    d.docker("exec", "-u", "worker", name, "id", says=("uid=1234(worker)", "extra"))
    d.docker("exec", "-e", "B=2", "-w", "/var", name, "sh", "-c", "echo $A$B $PWD", says="12 /var")
    d.docker("exec", name, "nonsense", status=(126, 127), says="executable file not found")


@scenarios.add("exec: standard input, -d")
def _(d):
    name = d.stay()
    d.docker("exec", "-i", name, "cat", stdin="handed in", says="handed in")
    d.docker("exec", "-d", name, "sh", "-c", "echo later >/tmp/later")
    eventually("it runs in the background", lambda: "later" in d.docker("exec", name, "cat", "/tmp/later"))


@scenarios.add("exec --privileged")
def _(d):
    name = d.stay()
    d.docker("exec", "--privileged", name, "grep", "CapEff", "/proc/self/status", says="ffffffff")


@scenarios.add("exec -it: a terminal")
def _(d):
    name = d.stay()
    d.terminal(["exec", "-it", name, "sh"], [("# ", "tty; exit 5\n"), ("/dev/pts/", "")], 5)


@scenarios.add("exec: one that outlives its container is ended with it")
def _(d):
    name = d.stay()
    d.docker("exec", "-d", name, "sleep", "1000")
    d.docker("kill", name)
    eventually("it is over", lambda: d.inspect(name, ".State.Status") == "exited")


# --- Stopping ---------------------------------------------------------------------------------------------------------
@scenarios.add("stop: SIGTERM is handled")
def _(d):
    name = d.stay()
    d.docker("stop", name)
    expect(d.inspect(name, ".State.ExitCode") == "9", "another exit code")


@scenarios.add("stop: what ignores SIGTERM is killed")
def _(d):
    name = d.stay(command=("sh", "-c", 'trap "" TERM; echo started; while :; do sleep 0.1; done'))
    d.docker("stop", "-t", "1", name)
    expect(d.inspect(name, ".State.ExitCode") == "137", "another exit code")


@scenarios.add("kill: signals by name and number")
def _(d):
    name = d.stay()
    d.docker("kill", "-s", "USR1", name)
    eventually("the signal arrives", lambda: "usr1" in d.docker("logs", name))
    d.docker("kill", "-s", "15", name)
    eventually("it ends", lambda: d.inspect(name, ".State.Status") == "exited")
    d.docker("kill", name, status=1, says="not running")


@scenarios.add("restart, start again, rm -f")
def _(d):
    name = d.stay()
    d.docker("restart", "-t", "2", name)
    d.docker("exec", name, "true")
    d.docker("kill", name)
    d.docker("start", name)
    d.docker("exec", name, "true")
    d.docker("rm", "-f", name)


@scenarios.add("pause, unpause")
def _(d):
    name = d.stay()
    d.docker("pause", name)
    expect(d.inspect(name, ".State.Status") == "paused", "it is not paused")
    d.docker("exec", name, "true", status=1, says="paused")
    d.docker("unpause", name)
    d.docker("exec", name, "true")


@scenarios.add("stop of a paused one")
def _(d):
    name = d.stay()
    d.docker("pause", name)
    d.docker("stop", "-t", "1", name, status=None)
    d.docker("rm", "-f", name)


@scenarios.add("--restart on-failure:2")
def _(d):
    name = d.fresh()
    d.docker("run", "-d", "--name", name, "--restart", "on-failure:2", "--network", "none", "bb", "false")
    eventually("it is given up", lambda: d.inspect(name, ".RestartCount") == "2" and d.inspect(name, ".State.Status") == "exited")
    expect(d.inspect(name, ".State.ExitCode") == "1", "another exit code")


@scenarios.add("--restart always: what is killed comes back")
def _(d):
    name = d.stay("--restart", "always")
    before = d.inspect(name, ".State.Pid")
    os.kill(int(before), 9)
    eventually("it comes back", lambda: d.inspect(name, ".State.Status") == "running" and d.inspect(name, ".State.Pid") not in (before, "0"))


@scenarios.add("live restore: containers outlive the daemon", long=True)
def _(d):
    if d.swarm:
        raise Absent("not with a swarm")
    d.config["live-restore"] = True
    d.write_config()
    d.daemon.reload()
    try:
        name = d.stay()
        d.daemon.stop()
        d.start()
        expect(d.inspect(name, ".State.Status") == "running", "it did not go on")
        d.docker("exec", name, "true")
        d.docker("stop", name)
        expect(d.inspect(name, ".State.ExitCode") == "9", "another exit code")
    finally:
        del d.config["live-restore"]
        d.write_config()
        d.daemon.reload()


# --- Limits -----------------------------------------------------------------------------------------------------------
@scenarios.add("--memory, --cpus, --pids-limit: in the cgroup")
def _(d):
    name = d.stay("-m", "64m", "--cpus", "0.5", "--pids-limit", "50")
    expect(d.cgroup_value(name, "memory.max", ("memory", "memory.limit_in_bytes")) == str(64 << 20), "memory")
    expect(d.cgroup_value(name, "cpu.max", ("cpu", "cpu.cfs_quota_us")).split()[0] == "50000", "cpu")
    expect(d.cgroup_value(name, "pids.max", ("pids", "pids.max")) == "50", "pids")


@scenarios.add("--pids-limit stops a fork bomb")
def _(d):
    d.run("--pids-limit", "20", "bb", "sh", "-c", "i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i+1)); done", status=2, says="fork")


@scenarios.add("--memory: out of memory, inspect OOMKilled")
def _(d):
    name = d.stay("-m", "20m", command=("sh", "-c", "x=a; while :; do x=$x$x; done"))
    d.docker("wait", name, says="137")
    eventually("OOMKilled", lambda: d.inspect(name, ".State.OOMKilled") == "true", 5)


@scenarios.add("--cpu-shares, --cpuset-cpus, --memory-reservation")
def _(d):
    name = d.stay("--cpu-shares", "512", "--cpuset-cpus", "0", "--memory-reservation", "32m", "-m", "64m")
    expect(d.cgroup_value(name, "cpu.weight", ("cpu", "cpu.shares")) in ("20", "512", "59"), "shares")
    expect(d.cgroup_value(name, "cpuset.cpus", ("cpuset", "cpuset.cpus")) == "0", "cpuset")
    expect(d.cgroup_value(name, "memory.low", ("memory", "memory.soft_limit_in_bytes")) == str(32 << 20), "reservation")


@scenarios.add("--device-write-bps, --blkio-weight")
def _(d):
    device = next((f"/dev/{name}" for name in ("vda", "sda", "ubda") if os.path.exists(f"/dev/{name}")), None)
    if not device:
        raise Absent("no disk")
    d.run("--device-write-bps", f"{device}:1mb", "bb", "true")


@scenarios.add("update of a running one")
def _(d):
    name = d.stay("-m", "64m")
    d.docker("update", "-m", "80m", "--memory-swap", "-1", "--cpus", "0.25", "--pids-limit", "33", name)
    expect(d.cgroup_value(name, "memory.max", ("memory", "memory.limit_in_bytes")) == str(80 << 20), "memory")
    expect(d.cgroup_value(name, "cpu.max", ("cpu", "cpu.cfs_quota_us")).split()[0] == "25000", "cpu")
    expect(d.cgroup_value(name, "pids.max", ("pids", "pids.max")) == "33", "pids")


@scenarios.add("stats")
def _(d):
    name = d.stay("-m", "64m")
    line = json.loads(d.docker("stats", "--no-stream", "--format", "{{json .}}", name))
    expect("64MiB" in line["MemUsage"] and not line["MemUsage"].startswith("0B") and int(line["PIDs"]) >= 1, f"stats: {line}")


@scenarios.add("--ulimit, --oom-score-adj, --sysctl, --shm-size")
def _(d):
    d.run("--ulimit", "nofile=100:100", "bb", "sh", "-c", "ulimit -n", says="100")
    d.run("--oom-score-adj", "500", "bb", "cat", "/proc/self/oom_score_adj", says="500")
    d.run("--sysctl", "net.ipv4.ip_forward=1", "bb", "cat", "/proc/sys/net/ipv4/ip_forward", says="1")
    d.run("--shm-size", "2m", "bb", "df", "-k", "/dev/shm", says="2048")


# --- Privileges -------------------------------------------------------------------------------------------------------
@scenarios.add("--read-only")
def _(d):
    d.run("--read-only", "bb", "touch", "/x", status=1, says="Read-only file system")


@scenarios.add("--tmpfs")
def _(d):
    d.run("--read-only", "--tmpfs", "/x:size=1m,mode=700", "bb", "sh", "-c", "touch /x/y && df -k /x && stat -c %a /x", says=("1024", "700"))


@scenarios.add("--cap-drop, --cap-add")
def _(d):
    d.run("--cap-drop", "ALL", "bb", "grep", "CapEff", "/proc/self/status", says="0000000000000000")
    d.run("--cap-drop", "ALL", "--cap-add", "CHOWN", "bb", "grep", "CapBnd", "/proc/self/status", says="0000000000000001")
    d.run("--cap-drop", "CHOWN", "bb", "chown", "1", "/tmp", status=1, says="Operation not permitted")


@scenarios.add("--security-opt no-new-privileges")
def _(d):
    d.run("--security-opt", "no-new-privileges", "bb", "grep", "NoNewPrivs", "/proc/self/status", says="1")


@scenarios.add("--security-opt seccomp=FILE, the default, unconfined")
def _(d):
    profile = f"{d.dir}/profile.json"
    with open(profile, "w") as file:
        json.dump({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}, file)
    d.run("--security-opt", f"seccomp={profile}", "bb", "mkdir", "/x", status=1, says="Operation not permitted")
    d.run("bb", "grep", "Seccomp:", "/proc/self/status", says="2")
    d.run("--security-opt", "seccomp=unconfined", "bb", "grep", "Seccomp:", "/proc/self/status", says="0")


@scenarios.add("--privileged")
def _(d):
    d.run("--privileged", "bb", "sh", "-c", "mount -t tmpfs none /tmp && grep Seccomp: /proc/self/status && ls /dev", says=("Seccomp:\t0", "null"))


@scenarios.add("--device")
def _(d):
    device = next((path for path in ("/dev/fuse", "/dev/loop-control", "/dev/hwrng", "/dev/kmsg") if os.path.exists(path)), None)
    if not device:
        raise Absent("no device that engines do not give anyway")
    d.run("bb", "sh", "-c", f"! [ -e {device} ]")
    d.run("--device", f"{device}:/dev/mine:r", "bb", "sh", "-c", "[ -c /dev/mine ] && : </dev/mine")
    d.run("--device", f"{device}:/dev/mine:r", "bb", "sh", "-c", ": >/dev/mine", status=(1, 2), says="not permitted")


@scenarios.add("--user: names, ids, groups")
def _(d):
    d.run("--user", "worker", "bb", "id", says=("uid=1234(worker)", "gid=4321", "5555(extra)"))
    d.run("--user", "5:6", "--group-add", "7", "bb", "id", says=("uid=5 gid=6", "7"))
    d.run("--user", "5", "bb", "grep", "CapEff", "/proc/self/status", says="0000000000000000")


@scenarios.add("masked and read-only paths")
def _(d):
    d.run("bb", "sh", "-c", "cat /proc/kcore | wc -c; echo x >/proc/sys/kernel/core_pattern", status=1, says=("0", "Read-only"))


# --- Visible files ----------------------------------------------------------------------------------------------------
@scenarios.add("--mount type=bind, read-write and read-only; -v")
def _(d):
    shared = d.house.room("shared")
    with open(f"{shared}/file", "w") as file:
        file.write("of the host\n")
    d.run("--mount", f"type=bind,src={shared},dst=/deep/shared", "bb", "sh", "-c", "cat /deep/shared/file && echo made >/deep/shared/made", says="of the host")
    expect(os.path.exists(f"{shared}/made"), "the host does not see what was made")
    d.run("--mount", f"type=bind,src={shared},dst=/shared,readonly", "bb", "touch", "/shared/x", status=1, says="Read-only")
    d.run("-v", f"{shared}/file:/etc/passwd:ro", "bb", "cat", "/etc/passwd", says="of the host")


@scenarios.add("--mount type=bind, propagation")
def _(d):
    shared = d.house.room("propagated")
    if not os.path.ismount(shared):
        run(["mount", "--bind", shared, shared])
        run(["mount", "--make-rshared", shared])
    try:
        name = d.stay("--mount", f"type=bind,src={shared},dst=/shared,bind-propagation=rslave")
        os.makedirs(f"{shared}/sub", exist_ok=True)
        run(["mount", "-t", "tmpfs", "sub", f"{shared}/sub"])
        d.docker("exec", name, "grep", "/shared/sub", "/proc/mounts", says="tmpfs")
    finally:
        run(["umount", "-R", shared])


@scenarios.add("volumes: copied from the image, kept")
def _(d):
    volume = f"volume-{d.runtime}"
    try:
        d.run("-v", f"{volume}:/var/data", "bb", "sh", "-c", "cat /var/data/file; echo kept >/var/data/kept", says="from the image")
        d.run("--mount", f"type=volume,src={volume},dst=/v,volume-nocopy", "bb", "cat", "/v/kept", says="kept")
        d.run("--mount", "type=tmpfs,dst=/t,tmpfs-size=1048576", "bb", "df", "-k", "/t", says="1024")
    finally:
        d.docker("volume", "rm", "-f", volume)


@scenarios.add("--hostname, --init, --pid host, --ipc, --uts host")
def _(d):
    d.run("--hostname", "named", "bb", "hostname", says="named")
    d.run("--pid", "host", "bb", "ps", says="dockerd")
    d.run("--ipc", "host", "--uts", "host", "bb", "hostname", says=os.uname().nodename)
    if shutil.which("docker-init"):
        d.run("--init", "bb", "ps", says="docker-init")


@scenarios.add("--network container:, --pid container:, --ipc container:")
def _(d):
    name = d.stay("--ipc", "shareable", command=("sleep", "987"))
    d.docker("run", "--rm", "--network", f"container:{name}", "--pid", f"container:{name}", "--ipc", f"container:{name}", "bb", "ps", says="sleep 987")


@scenarios.add("--cgroup-parent, --cgroupns")
def _(d):
    parent = "engines.slice" if d.house.systemd else "/engines"
    name = d.stay("--cgroup-parent", parent)
    with open(f"/proc/{d.inspect(name, '.State.Pid')}/cgroup") as file:
        text = file.read()
    expect("/engines" in text, f"not below it: {text}")
    d.run("--cgroupns", "private", "bb", "cat", "/proc/self/cgroup", says=":/\n")
    d.run("--cgroupns", "private", "bb", "ls", "/sys/fs/cgroup", says="cgroup.procs" if d.house.cgroup2 else "memory")


@scenarios.add("cp, diff, commit, export")
def _(d):
    name = d.stay()
    d.docker("exec", name, "sh", "-c", "echo changed >/changed")
    d.docker("diff", name, says="A /changed")
    d.docker("cp", f"{name}:/changed", f"{d.dir}/copied")
    d.docker("cp", f"{d.dir}/copied", f"{name}:/back")
    d.docker("exec", name, "cat", "/back", says="changed")
    d.docker("commit", name, "committed")
    d.run("committed", "cat", "/changed", says="changed")
    d.docker("rmi", "committed")


# --- Networks ---------------------------------------------------------------------------------------------------------
@scenarios.add("--network none")
def _(d):
    # The kernel creates tunnels in every namespace; they are down.
    d.run("bb", "sh", "-c", "ip -o link show up", says="lo", lacks="eth0")


@scenarios.add("--network host")
def _(d):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        # Closes each connection, so that the client exits.
        threading.Thread(target=lambda: server.accept()[0].close(), daemon=True).start()
        d.run("bb", "sh", "-c", f"nc 127.0.0.1 {port} </dev/null", network="host", timeout=10)


@scenarios.add("--network bridge: two reach each other, -p publishes")
def _(d):
    server = d.stay("-p", "127.0.0.1:0:8000", network="bridge", command=("sh", "-c", "while :; do echo served | nc -l -p 8000; done"))
    address = d.inspect(server, ".NetworkSettings.IPAddress")
    expect(address, "it has no address")
    eventually("one reaches the other", lambda: "served" in d.run("bb", "sh", "-c", f"nc {address} 8000 </dev/null", network="bridge", status=None))
    port = d.docker("port", server).strip().rsplit(":", 1)[1]

    def reach():
        with socket.create_connection(("127.0.0.1", int(port)), 2) as client:
            return b"served" in client.recv(100)

    eventually("the port answers", lambda: reached(reach))


def reached(reach):
    """Whether a connection succeeds with the expected answer."""
    try:
        return reach()
    except OSError as error:
        raise Failed(str(error)) from None


@scenarios.add("a network of the user's, and names in it")
def _(d):
    network = f"net-{d.runtime}"
    d.docker("network", "create", network)
    try:
        name = d.stay("--network-alias", "server", network=network, command=("sh", "-c", "while :; do echo named | nc -l -p 8000; done"))
        eventually("the name is known", lambda: "named" in d.run("bb", "sh", "-c", "nc server 8000 </dev/null", network=network, status=None))
        d.docker("network", "disconnect", network, name)
    finally:
        d.sweep()
        d.docker("network", "rm", network)


# --- Health, builds, errors -------------------------------------------------------------------------------------------
@scenarios.add("healthcheck")
def _(d):
    name = d.stay("--health-cmd", "test -e /healthy", "--health-interval", "300ms", "--health-retries", "2", "--health-timeout", "10s")
    eventually("it is unhealthy", lambda: d.inspect(name, ".State.Health.Status") == "unhealthy", 20)
    d.docker("exec", name, "touch", "/healthy")
    eventually("it is healthy", lambda: d.inspect(name, ".State.Health.Status") == "healthy", 20)


DOCKERFILE = """FROM bb
ENV A=1
RUN echo built $A >/built && id -u >>/built
USER worker
WORKDIR /tmp
RUN id -u >mine
CMD ["sh", "-c", "cat /built mine"]
"""


@scenarios.add("build with RUN steps")
def _(d):
    run([CLIENT, "-H", f"unix://{d.socket}", "build", "--no-cache", "--network", "none", "-t", f"built-{d.runtime}", "-"], stdin=DOCKERFILE,
        env=os.environ | {"DOCKER_BUILDKIT": "0"}, timeout=120)
    d.run(f"built-{d.runtime}", says=("built 1\n0", "1234"))
    d.docker("rmi", "-f", f"built-{d.runtime}")


@scenarios.add("build: a RUN step that fails")
def _(d):
    run([CLIENT, "-H", f"unix://{d.socket}", "build", "--no-cache", "--network", "none", "-"], stdin="FROM bb\nRUN exit 17\n",
        env=os.environ | {"DOCKER_BUILDKIT": "0"}, status=None, says="returned a non-zero code: 17")


@scenarios.add("errors of the runtime reach the user")
def _(d):
    d.run("--sysctl", "net.ipv4.nonsense=1", "bb", "true", status=(125, 126, 127), says=("OCI runtime create failed", "nonsense"))


@scenarios.add("stockade run in a container with docker's own default profile")
def _(d):
    if not d.house.stockade:
        raise Absent("not built: stockade")
    # The image has no /usr, which a run shows.
    inside = ("-v", f"{d.house.stockade}:/stockade:ro", "-v", f"{d.house.room('usr')}:/usr:ro", "bb", "/stockade")
    d.run(*inside, "run", "--", "sh", "-c", "echo r''an", status=125, says="--allow-degraded namespaces", lacks="ran")
    look = "echo r''an; id -u; cat /var/data/file; echo x >/etc/passwd; kill -9 1; cat /proc/1/environ; chmod 777 /bin; true"
    d.run(*inside, "run", "-p", "nested", "--", "sh", "-c", look, says=("limits alone", "ran\n", "Permission denied"), lacks="from the image")
    d.run(*inside, "doctor", status=1, says="Runs here: no namespaces")
    outer = ("--security-opt", f"seccomp={d.house.outer}", *inside)
    d.run(*outer, "run", "-p", "nested", "--", "sh", "-c", "echo r''an", says="ran", lacks="limits alone")


@scenarios.add("user namespaces of the daemon (userns-remap)", long=True)
def _(d):
    d.house.adopt_user()
    other = f"{d.dir}/remapped"
    socket_path = f"{other}/sock"
    os.makedirs(other, exist_ok=True)
    with open(f"{other}/config.json", "w") as file:
        json.dump(d.config | {"userns-remap": "stockade-engines"}, file)
    daemon = Daemon(["dockerd", "--config-file", f"{other}/config.json", "--data-root", f"{other}/data", "--exec-root", f"{other}/exec",
                     "--pidfile", f"{other}/pid", "-H", f"unix://{socket_path}", "--iptables=false", "--ip6tables=false", "--bridge=none",
                     "--ip-forward=false", "--ip-masq=false"], f"{other}/log")
    docker = [CLIENT, "-H", f"unix://{socket_path}"]
    try:
        daemon.wait_for(lambda: os.path.exists(socket_path) and run([*docker, "version"]))
        run([*docker, "import", d.house.tar, "bb"])
        run([*docker, "run", "--rm", "--network", "none", "bb", "sh", "-c", "cat /proc/self/uid_map; stat -c %u /bin; touch /x; exit 3"],
            status=3, says=("2000000", "65536"))
    finally:
        daemon.stop()
