"""containerd through ctr: --runc-binary gives the shim the runtime's program."""

import os

import scenario
from docker import LOOP, cgroup_value
from scenario import Daemon, Failed, Scenarios, eventually, expect, on_terminal, run, version

IMAGE = "docker.io/library/bb:1"
scenarios = Scenarios()

# One configuration for ctr and the CRI; cri.py adds the part for the CRI.
CONFIG = """version = {version}
root = "{dir}/root"
state = "{dir}/state"
{more}
[grpc]
address = "{dir}/sock"
[ttrpc]
address = "{dir}/ttrpc"
"""


def oci_image(house, name, path, user=None):
    """Packs the house's root as an image that `ctr image import` takes, for a user if one is named."""
    import hashlib
    import json
    import shutil

    base = house.room("oci-image")
    blobs = f"{base}/blobs/sha256"
    shutil.rmtree(base)
    os.makedirs(blobs)

    def blob(data):
        digest = hashlib.sha256(data).hexdigest()
        with open(f"{blobs}/{digest}", "wb") as file:
            file.write(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    with open(house.tar, "rb") as file:
        layer = blob(file.read())
    config = {"architecture": "amd64" if os.uname().machine == "x86_64" else "arm64", "os": "linux",
              "config": {"Env": ["PATH=/bin"], "Cmd": ["sleep", "1000000"]} | ({"User": user} if user else {}),
              "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}
    of_config = blob(json.dumps(config).encode())
    kind = "application/vnd.oci.image"
    manifest = blob(json.dumps({
        "schemaVersion": 2, "mediaType": f"{kind}.manifest.v1+json", "config": of_config | {"mediaType": f"{kind}.config.v1+json"},
        "layers": [layer | {"mediaType": f"{kind}.layer.v1.tar"}]}).encode())
    with open(f"{base}/index.json", "w") as file:
        json.dump({"schemaVersion": 2, "manifests": [manifest | {"mediaType": f"{kind}.manifest.v1+json",
                   "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": "1"}}]}, file)
    with open(f"{base}/oci-layout", "w") as file:
        file.write('{"imageLayoutVersion":"1.0.0"}')
    run(["tar", "-C", base, "-cf", path, "."])
    return path


class Engine(scenario.Engine):
    """containerd and ctr."""

    name = "containerd"
    scenarios = scenarios

    def up(self):
        self.dir = self.house.room(self.name)
        self.environment = os.environ | {"CONTAINERD_ADDRESS": f"{self.dir}/sock"}
        with open(f"{self.dir}/config.toml", "w") as file:
            file.write(CONFIG.format(version=2, dir=self.dir, more='disabled_plugins = ["io.containerd.grpc.v1.cri"]'))
        self.daemon = Daemon(["containerd", "-c", f"{self.dir}/config.toml"], f"{self.dir}/log")
        self.daemon.wait_for(lambda: os.path.exists(f"{self.dir}/sock") and self.ctr("version"))
        self.ctr("image", "import", oci_image(self.house, IMAGE, f"{self.dir}/image.tar"))

    def down(self):
        if getattr(self, "daemon", None):
            self.daemon.stop()

    def ctr(self, *words, **rest):
        return run(["ctr", *words], env=self.environment, **rest)

    def options(self):
        more = ["--runc-systemd-cgroup", "--cgroup", f"system.slice:ctr:{self.runtime}-{self.count}"] if self.house.systemd else []
        return ["--runc-binary", self.program, *more]

    def run(self, *words, command=("true",), **rest):
        name = self.fresh()
        return self.ctr("run", "--rm", *self.options(), *words, IMAGE, name, *command, **rest)

    def stay(self, *words, command=("sh", "-c", LOOP)):
        name = self.fresh()
        self.ctr("run", "-d", *self.options(), *words, IMAGE, name, *command)
        return name

    def remove(self, name):
        self.ctr("task", "kill", "-s", "KILL", name, status=None)
        self.ctr("task", "rm", "-f", name, status=None)
        self.ctr("container", "rm", name, status=None)

    def pid(self, name):
        for line in self.ctr("task", "ls").splitlines():
            if line.split()[0] == name:
                return line.split()[1]
        raise Failed(f"no task {name}")

    def versions(self):
        return [version(["containerd", "--version"]), "cgroup v2" if self.house.cgroup2 else "cgroup v1"]


@scenarios.add("ctr run: output and exit status")
def _(c):
    c.run(command=("sh", "-c", "id; exit 5"), status=5, says="uid=0")


@scenarios.add("ctr run: a program that is not there")
def _(c):
    c.run(command=("nonsense",), status=1, says="executable file not found")


@scenarios.add("ctr run -t: a terminal")
def _(c):
    name = c.fresh()
    on_terminal(["ctr", "run", "--rm", "-t", *c.options(), IMAGE, name, "sh"], [("# ", "tty; exit 4\n"), ("/dev/pts/0", "")], 4, env=c.environment)


@scenarios.add("ctr run -d, task exec, ps, ls")
def _(c):
    name = c.stay()
    c.ctr("task", "exec", "--exec-id", "x", name, "sh", "-c", "echo inside; exit 3", status=3, says="inside")
    c.ctr("task", "exec", "--exec-id", "y", "--user", "5", name, "id", says="uid=5")
    c.ctr("task", "exec", "--exec-id", "z", name, "nonsense", status=1, says="executable file not found")
    c.ctr("task", "ps", name, says="PID")
    c.ctr("task", "ls", says=name)


@scenarios.add("ctr task exec -t")
def _(c):
    name = c.stay()
    on_terminal(["ctr", "task", "exec", "-t", "--exec-id", "t", name, "sh"], [("# ", "tty; exit 4\n"), ("/dev/pts/", "")], 4, env=c.environment)


@scenarios.add("ctr task pause, resume")
def _(c):
    name = c.stay()
    c.ctr("task", "pause", name)
    c.ctr("task", "ls", says="PAUSED")
    c.ctr("task", "resume", name)
    c.ctr("task", "ls", says="RUNNING")


@scenarios.add("ctr task metrics")
def _(c):
    name = c.stay("--memory-limit", str(64 << 20))
    c.ctr("task", "metrics", name, says=("memory", "pids"))


@scenarios.add("ctr task kill, rm: the exit status")
def _(c):
    name = c.stay()
    c.ctr("task", "kill", "-s", "TERM", name)
    eventually("it ends", lambda: "STOPPED" in c.ctr("task", "ls"))
    c.ctr("task", "rm", name, status=(0, 9))
    c.ctr("container", "rm", name)
    expect(name not in c.ctr("task", "ls"), "the task is still there")


@scenarios.add("ctr task kill --all")
def _(c):
    name = c.stay()
    c.ctr("task", "exec", "-d", "--exec-id", "x", name, "sleep", "1000", status=None)
    c.ctr("task", "kill", "--all", "-s", "KILL", name)
    eventually("it ends", lambda: "STOPPED" in c.ctr("task", "ls"))


@scenarios.add("ctr run: limits in the cgroup")
def _(c):
    name = c.stay("--memory-limit", str(64 << 20), "--cpus", "0.5")
    pid = c.pid(name)
    expect(cgroup_value(pid, "memory.max", ("memory", "memory.limit_in_bytes")) == str(64 << 20), "memory")
    expect(cgroup_value(pid, "cpu.max", ("cpu", "cpu.cfs_quota_us")).split()[0] == "50000", "cpu")


@scenarios.add("ctr run: read-only, bind, directory, environment")
def _(c):
    c.run("--read-only", command=("touch", "/x"), status=1, says="Read-only file system")
    shared = c.house.room("shared")
    c.run("--mount", f"type=bind,src={shared},dst=/shared,options=rbind:ro", command=("touch", "/shared/x"), status=1, says="Read-only")
    c.run("--cwd", "/new/dir", "--env", "A=b", command=("sh", "-c", "echo $A; pwd"), says=("b", "/new/dir"))


@scenarios.add("ctr run: capabilities, seccomp, no_new_privs, devices")
def _(c):
    c.run("--cap-drop", "CAP_CHOWN", command=("chown", "1", "/tmp"), status=1, says="Operation not permitted")
    c.run("--seccomp", command=("grep", "Seccomp:", "/proc/self/status"), says="2")
    c.run(command=("grep", "NoNewPrivs", "/proc/self/status"), says="1")
    c.run("--allow-new-privs", command=("grep", "NoNewPrivs", "/proc/self/status"), says="0")
    c.run("--device", "/dev/full", command=("ls", "-l", "/dev/full"), says="1,   7")


@scenarios.add("ctr run --privileged")
def _(c):
    c.run("--privileged", command=("mount", "-t", "tmpfs", "none", "/tmp"))


@scenarios.add("ctr run --uidmap: a user namespace")
def _(c):
    c.run("--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536", "--remap-labels", command=("cat", "/proc/self/uid_map"), says="100000")


@scenarios.add("ctr run --net-host, --with-ns")
def _(c):
    c.run("--net-host", command=("ip", "link"), says="lo")
    c.run("--with-ns", "network:/proc/self/ns/net", command=("true",), status=None)
    name = c.stay()
    c.run("--with-ns", f"network:/proc/{c.pid(name)}/ns/net", command=("ip", "link"), says="lo")


@scenarios.add("ctr run --rootfs", long=True)
def _(c):
    name = c.fresh()
    c.ctr("run", "--rm", *c.options(), "--rootfs", c.house.root, name, "/bin/sh", "-c", "echo from a directory", says="from a directory")


@scenarios.add("containers outlive the daemon", long=True)
def _(c):
    name = c.stay()
    c.daemon.stop()
    c.daemon = Daemon(["containerd", "-c", f"{c.dir}/config.toml"], f"{c.dir}/log")
    c.daemon.wait_for(lambda: c.ctr("version"))
    c.ctr("task", "exec", "--exec-id", "x", name, "true")
