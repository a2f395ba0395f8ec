"""containerd through its CRI, as a kubelet would: a pod with the round's runtime as its handler, and containers in it."""

import os

import scenario
from containerd import CONFIG, IMAGE, oci_image
from cri_client import Client, decode, pair
from docker import LOOP, cgroup_value
from scenario import PATIENCE, Absent, Daemon, Failed, Scenarios, eventually, expect, run, version

scenarios = Scenarios()
CNI = next((path for path in ("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni") if os.path.exists(f"{path}/bridge")), None)
NODE, CONTAINER, POD = 2, 1, 0

# The configuration of a kubelet's containerd, by the version of the file: 2 for containerd 1, 3 for containerd 2.
PLUGIN = {
    2: """
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  disable_apparmor = true
  # For a machine that may not lower OOM scores; kubelets in user namespaces set it too.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{dir}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
""",
    3: """
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{image}"
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{cni}"]
    conf_dir = "{dir}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
""",
}
HANDLER = """
  [plugins."{plugin}".containerd.runtimes.{name}]
    runtime_type = "io.containerd.runc.v2"
    [plugins."{plugin}".containerd.runtimes.{name}.options]
      BinaryName = "{program}"
      SystemdCgroup = {systemd}
"""


class Engine(scenario.Engine):
    """containerd with its CRI, and a client."""

    name = "cri"
    scenarios = scenarios

    def up(self):
        try:
            import grpc  # noqa: F401
        except ImportError:
            raise Absent("not installed: python3-grpcio") from None
        self.dir = self.house.room(self.name)
        self.daemon = None

    def use(self, runtime, program):
        super().use(runtime, program)
        self.down()
        file_version = 3 if "/v2 " in version(["containerd", "--version"]) else 2
        config = PLUGIN[file_version].format(image=IMAGE, cni=CNI or "/nowhere", dir=self.dir)
        for handler, path in {"runc": "runc", runtime: program}.items():
            config += HANDLER.format(plugin="io.containerd.cri.v1.runtime" if file_version == 3 else "io.containerd.grpc.v1.cri",
                                     name=handler, program=path, systemd=str(self.house.systemd).lower())
        with open(f"{self.dir}/config.toml", "w") as file:
            file.write(CONFIG.format(version=file_version, dir=self.dir, more="") + config)
        os.makedirs(f"{self.dir}/cni", exist_ok=True)
        with open(f"{self.dir}/cni/10-net.conflist", "w") as file:
            file.write('{"cniVersion":"0.4.0","name":"pods","plugins":[{"type":"bridge","bridge":"engines0","isGateway":true,'
                       '"ipMasq":false,"ipam":{"type":"host-local","dataDir":"%s/ipam","subnet":"10.88.77.0/24"}}]}' % self.dir)
        self.daemon = Daemon(["containerd", "-c", f"{self.dir}/config.toml"], f"{self.dir}/log")
        address = f"{self.dir}/sock"
        environment = os.environ | {"CONTAINERD_ADDRESS": address}
        self.daemon.wait_for(lambda: os.path.exists(address) and run(["ctr", "version"], env=environment))
        run(["ctr", "-n", "k8s.io", "image", "import", oci_image(self.house, IMAGE, f"{self.dir}/image.tar")], env=environment)
        self.client = Client(address)
        eventually("the CRI answers", lambda: self.call("Version", []))

    def down(self):
        if getattr(self, "daemon", None):
            self.daemon.stop()
            self.daemon = None

    def call(self, method, fields, service="RuntimeService"):
        try:
            return self.client.call(service, method, fields, 60 * PATIENCE)
        except self.client.grpc.RpcError as error:
            raise Failed(f"{method}: {error.code().name}: {error.details()}") from None

    def remove(self, name):
        for method in ("StopPodSandbox", "RemovePodSandbox"):
            try:
                self.call(method, [(1, name)])
            except Failed:
                pass

    def pod(self, network=NODE, pid=CONTAINER, security=(), linux=()):
        """A running pod: its id and its configuration. Removed after the scenario."""
        self.count += 1
        name = f"{self.runtime}-{self.count}"
        # Each part: its number in the CRI's definition, and its value.
        config = [
            (1, [(1, name), (2, name), (3, "default")]), (2, None if network == NODE else name), (3, f"{self.dir}/logs/{name}"),
            (8, [(1, "/kube" if not self.house.systemd else "kube.slice"), (2, [(1, [(1, network), (2, pid)]), *security]), *linux]),
        ]
        os.makedirs(f"{self.dir}/logs/{name}", exist_ok=True)
        pod = self.call("RunPodSandbox", [(1, config), (2, self.runtime)])[1][0].decode()
        self.started.append(pod)
        return pod, config

    def container(self, pod, command, resources=(), security=(), start=True, more=(), pid=CONTAINER, network=NODE):
        """A container of a pod, started: its id."""
        self.count += 1
        name = f"c{self.count}"
        config = [
            (1, [(1, name)]), (2, [(1, IMAGE)]), *[(3, word) for word in command], (11, f"{name}.log"), *more,
            (15, [(1, list(resources)), (2, [(3, [(1, network), (2, pid)]), *security])]),
        ]
        id = self.call("CreateContainer", [(1, pod[0]), (2, config), (3, pod[1])])[1][0].decode()
        if start:
            self.call("StartContainer", [(1, id)])
        return id

    def status(self, id):
        """State (0 created, 1 running, 2 exited), exit code, reason, log file."""
        status = decode(self.call("ContainerStatus", [(1, id)])[1][0])
        text = lambda number: status.get(number, [b""])[0].decode()  # noqa: E731
        return status.get(3, [0])[0], status.get(7, [0])[0], text(10), text(15)

    def ended(self, id):
        eventually("the container ends", lambda: self.status(id)[0] == 2)
        return self.status(id)

    def exec(self, id, *command):
        """ExecSync: both outputs, and the status."""
        answer = self.call("ExecSync", [(1, id), *[(2, word) for word in command], (3, 30)])
        return (answer.get(1, [b""])[0] + answer.get(2, [b""])[0]).decode(), answer.get(3, [0])[0]

    def said(self, id, *command):
        out, status = self.exec(id, *command)
        expect(status == 0, f"{command}: status {status}: {out}")
        return out

    def versions(self):
        return [version(["containerd", "--version"]), "CRI v1", "cgroup v2" if self.house.cgroup2 else "cgroup v1"]


STAY = ("sh", "-c", LOOP)


def pid_of(c, id):
    """The host's pid of a container's first process."""
    import json

    info = c.call("ContainerStatus", [(1, id), (2, True)])
    for entry in info.get(2, []):
        entry = decode(entry)
        if entry[1][0] == b"info":
            return json.loads(entry[2][0])["pid"]
    raise Failed("the CRI tells no pid")


@scenarios.add("a pod, a container: log and exit code")
def _(c):
    pod = c.pod()
    id = c.container(pod, ("sh", "-c", "echo out; echo err >&2; exit 7"))
    state, code, reason, log = c.ended(id)
    expect((code, reason) == (7, "Error"), f"exit code {code}, reason {reason}")
    with open(log) as file:
        text = file.read()
    expect("stdout F out" in text and "stderr F err" in text, f"the log: {text}")


@scenarios.add("ExecSync: output, status, a program that is not there")
def _(c):
    id = c.container(c.pod(), STAY)
    out, status = c.exec(id, "sh", "-c", "echo inside; echo err >&2; exit 3")
    expect(("inside" in out, "err" in out, status) == (True, True, 3), f"{status}: {out}")
    try:
        c.exec(id, "nonsense")
        raise Failed("a program that is not there ran")
    except Failed as failed:
        expect("executable file not found" in str(failed), str(failed))


@scenarios.add("created, then started; stopped within its time")
def _(c):
    pod = c.pod()
    id = c.container(pod, STAY, start=False)
    expect(c.status(id)[0] == 0, "it is not created")
    c.call("StartContainer", [(1, id)])
    expect(c.status(id)[0] == 1, "it does not run")
    c.call("StopContainer", [(1, id), (2, 10)])
    state, code, _, _ = c.status(id)
    expect((state, code) == (2, 9), f"state {state}, exit code {code}")
    c.call("RemoveContainer", [(1, id)])


@scenarios.add("what ignores SIGTERM is killed")
def _(c):
    id = c.container(c.pod(), ("sh", "-c", 'trap "" TERM; while :; do sleep 0.1; done'))
    c.call("StopContainer", [(1, id), (2, 1)])
    expect(c.status(id)[1] == 137, f"exit code {c.status(id)[1]}")


@scenarios.add("a program that is not there: the start fails, and says so")
def _(c):
    try:
        c.container(c.pod(), ("nonsense",))
        raise Failed("it started")
    except Failed as failed:
        expect("executable file not found" in str(failed), str(failed))


@scenarios.add("resources, and their update")
def _(c):
    id = c.container(c.pod(), STAY, resources=[(1, 100000), (2, 50000), (3, 512), (4, 64 << 20)])
    pid = pid_of(c, id)
    expect(cgroup_value(pid, "memory.max", ("memory", "memory.limit_in_bytes")) == str(64 << 20), "memory")
    expect(cgroup_value(pid, "cpu.max", ("cpu", "cpu.cfs_quota_us")).split()[0] == "50000", "cpu")
    c.call("UpdateContainerResources", [(1, id), (2, [(1, 100000), (2, 25000), (4, 80 << 20)])])
    expect(cgroup_value(pid, "memory.max", ("memory", "memory.limit_in_bytes")) == str(80 << 20), "memory after the update")
    expect(cgroup_value(pid, "cpu.max", ("cpu", "cpu.cfs_quota_us")).split()[0] == "25000", "cpu after the update")


@scenarios.add("statistics")
def _(c):
    id = c.container(c.pod(), STAY)
    stats = decode(c.call("ContainerStats", [(1, id)])[1][0])
    memory = decode(stats[3][0])
    expect(decode(memory[2][0])[1][0] > 0, "no memory is in use")


@scenarios.add("out of memory: the reason is OOMKilled")
def _(c):
    id = c.container(c.pod(), ("sh", "-c", "sleep 0.5; x=a; while :; do x=$x$x; done"), resources=[(4, 20 << 20)])
    _, code, reason, _ = c.ended(id)
    expect((code, reason) == (137, "OOMKilled"), f"exit code {code}, reason {reason}")


@scenarios.add("security: user, read-only root, capabilities, no_new_privs, seccomp")
def _(c):
    pod = c.pod()
    capabilities = [(2, "ALL")]
    id = c.container(pod, STAY, security=[(1, capabilities), (5, [(1, 1000)]), (7, True), (11, True), (15, [(1, 0)]), (12, [(1, 1001)])])
    expect("uid=1000 gid=1001" in c.said(id, "id"), c.said(id, "id"))
    status = c.said(id, "grep", "-E", "CapEff|NoNewPrivs|Seccomp:", "/proc/self/status")
    expect("0000000000000000" in status and "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status, status)
    expect("Read-only" in c.exec(id, "touch", "/x")[0], "the root is not read-only")


@scenarios.add("masked and read-only paths")
def _(c):
    id = c.container(c.pod(), STAY, security=[(13, "/proc/meminfo"), (13, "/proc/not-there"), (14, "/proc/sys")])
    expect(c.said(id, "sh", "-c", "cat /proc/meminfo | wc -c").strip() == "0", "a masked file shows")
    expect("Read-only" in c.exec(id, "sh", "-c", "echo x >/proc/sys/kernel/core_pattern")[0], "core_pattern can be written")


@scenarios.add("a privileged pod")
def _(c):
    pod = c.pod(security=[(6, True)])
    id = c.container(pod, STAY, security=[(2, True)])
    c.said(id, "mount", "-t", "tmpfs", "none", "/tmp")


@scenarios.add("two containers of one pod share its ipc; with POD also its processes")
def _(c):
    pod = c.pod(pid=POD)
    one = c.container(pod, ("sleep", "1234"), pid=POD)
    two = c.container(pod, STAY, pid=POD)
    expect("sleep 1234" in c.said(two, "ps"), "it does not see the other")
    expect(c.said(one, "readlink", "/proc/self/ns/ipc") == c.said(two, "readlink", "/proc/self/ns/ipc"), "their ipc differs")


@scenarios.add("a pod with an address; two containers on its localhost")
def _(c):
    if not CNI:
        raise Absent("not installed: containernetworking-plugins")
    pod = c.pod(network=POD)
    c.container(pod, ("sh", "-c", "while :; do echo served | nc -l -p 8000; done"), network=POD)
    other = c.container(pod, STAY, network=POD)
    eventually("one reaches the other", lambda: "served" in c.exec(other, "sh", "-c", "nc 127.0.0.1 8000 </dev/null")[0])
    expect("10.88.77." in c.said(other, "ip", "addr"), "it has no address")


@scenarios.add("mounts: host paths read-write and read-only, propagation")
def _(c):
    shared = c.house.room("shared")
    id = c.container(c.pod(), STAY, more=[(7, [(1, "/rw"), (2, shared)]), (7, [(1, "/ro"), (2, shared), (3, True)])])
    c.said(id, "touch", "/rw/by-cri")
    expect(os.path.exists(f"{shared}/by-cri"), "the host does not see it")
    expect("Read-only" in c.exec(id, "touch", "/ro/x")[0], "it is not read-only")


@scenarios.add("sysctls of a pod")
def _(c):
    pod = c.pod(network=POD if CNI else NODE, linux=[(3, pair("kernel.shm_rmid_forced", "1"))])
    id = c.container(pod, STAY, network=POD if CNI else NODE)
    expect(c.said(id, "cat", "/proc/sys/kernel/shm_rmid_forced").strip() == "1", "it is not set")


@scenarios.add("a device of the host's")
def _(c):
    id = c.container(c.pod(), STAY, more=[(8, [(1, "/dev/mine"), (2, "/dev/full"), (3, "rw")])])
    expect("1,   7" in c.said(id, "ls", "-l", "/dev/mine"), "it is another")


@scenarios.add("the pod is stopped with what runs in it")
def _(c):
    pod = c.pod()
    id = c.container(pod, STAY)
    pid = pid_of(c, id)
    c.call("StopPodSandbox", [(1, pod[0])])
    expect(not os.path.exists(f"/proc/{pid}"), "its container goes on")
    c.call("RemovePodSandbox", [(1, pod[0])])


@scenarios.add("pods outlive the daemon", long=True)
def _(c):
    id = c.container(c.pod(), STAY)
    c.daemon.stop()
    c.daemon = Daemon(["containerd", "-c", f"{c.dir}/config.toml"], f"{c.dir}/log")
    eventually("the CRI answers again", lambda: c.call("Version", []))
    eventually("it still runs", lambda: c.status(id)[0] == 1)
    c.said(id, "true")
