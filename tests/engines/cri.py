"""containerd through its CRI, driven as a kubelet drives it: what the kubelet makes on the node (directories, files, the pod's
cgroup) is made here, and pods and containers are asked for with the fields that it sends. The round's runtime is the pods'
handler, as a RuntimeClass names it. Both runtimes run every scenario; what a scenario returns has to be the same."""

import os
import shutil

import cri_lives
import cri_node
import cri_pods
import cri_security
import cri_streams
import scenario
from containerd import CONFIG, IMAGE, oci_image
from cri_client import Client
from cri_view import CONTAINER, EXITED, MASKED, POD, READ_ONLY
from docker import LOOP
from house import cgroup_hierarchies, remove_cgroups, write
from scenario import PATIENCE, Absent, Daemon, Failed, eventually, expect, run, version

CNI = next((path for path in ("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni") if os.path.exists(f"{path}/bridge")), None)
AS_USER = "docker.io/library/user:1"

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
NETWORK = """{{"cniVersion": "0.4.0", "name": "pods", "plugins": [{{"type": "bridge", "bridge": "engines0", "isGateway": true,
"ipMasq": false, "ipam": {{"type": "host-local", "dataDir": "{dir}/ipam", "subnet": "10.88.77.0/24"}}}}]}}"""


class Pod:
    """A pod that runs: its id, and what it was made of."""

    def __init__(self, number, name, directory, namespaces):
        self.name, self.directory, self.namespaces = name, directory, namespaces
        self.uid = f"0d15ea5e-0000-4000-8000-{number:012}"
        self.logs, self.cgroup = f"{directory}/logs", f"/kubepods/burstable/pod{self.uid}"
        self.id, self.config = "", {}


class Engine(scenario.Engine):
    """containerd with its CRI, and a client."""

    name = "cri"
    scenarios = cri_pods.scenarios + cri_lives.scenarios + cri_security.scenarios + cri_node.scenarios + cri_streams.scenarios
    compared = True

    def up(self):
        try:
            import grpc  # noqa: F401
        except ImportError:
            raise Absent("not installed: python3-grpcio") from None
        self.dir = self.house.room(self.name)
        self.daemon, self.pods = None, {}
        self.version = 2 if "/v2 " in version(["containerd", "--version"]) else 1

    def use(self, runtime, program):
        super().use(runtime, program)
        self.down()
        file_version = 3 if self.version == 2 else 2
        config = PLUGIN[file_version].format(image=IMAGE, cni=CNI or "/nowhere", dir=self.dir)
        for handler, path in {"runc": "runc", runtime: program}.items():
            config += HANDLER.format(plugin="io.containerd.cri.v1.runtime" if file_version == 3 else "io.containerd.grpc.v1.cri",
                                     name=handler, program=path, systemd=str(self.house.systemd).lower())
        write(f"{self.dir}/config.toml", CONFIG.format(version=file_version, dir=self.dir, more="") + config)
        os.makedirs(f"{self.dir}/cni", exist_ok=True)
        write(f"{self.dir}/cni/10-net.conflist", NETWORK.format(dir=self.dir))
        self.address = f"{self.dir}/sock"
        self.environment = os.environ | {"CONTAINERD_ADDRESS": self.address}
        self.start()
        for name, user in ((IMAGE, None), (AS_USER, "1234:4321")):
            run(["ctr", "-n", "k8s.io", "image", "import", oci_image(self.house, name, f"{self.dir}/image.tar", user)], env=self.environment)

    def start(self):
        """Starts containerd, and waits for its CRI."""
        self.daemon = Daemon(["containerd", "-c", f"{self.dir}/config.toml"], f"{self.dir}/log")
        self.daemon.wait_for(lambda: os.path.exists(self.address) and run(["ctr", "version"], env=self.environment))
        self.client = Client(self.address)
        eventually("the CRI answers", lambda: self.call("Version"))

    def down(self):
        if getattr(self, "daemon", None):
            self.daemon.stop()
            self.daemon = None

    def call(self, method, /, **request):
        try:
            return self.client.call(method, 60 * PATIENCE, **request)
        except self.client.grpc.RpcError as error:
            raise Failed(f"{method}: {error.code().name}: {error.details()}") from None

    def remove(self, name):
        for method in ("StopPodSandbox", "RemovePodSandbox"):
            try:
                self.call(method, pod_sandbox_id=name)
            except Failed:
                pass
        pod = self.pods.pop(name)
        if not self.house.systemd:
            remove_cgroups(self.cgroups(pod))
        shutil.rmtree(pod.directory, ignore_errors=True)

    def cgroups(self, pod):
        """The directories of a pod's cgroup."""
        return [point + pod.cgroup for kind, point, _ in cgroup_hierarchies() if kind == "cgroup" or self.house.cgroup2]

    def make_cgroups(self, pod):
        """Makes the pod's cgroup, as the kubelet does first of all."""
        for directory in self.cgroups(pod):
            above = directory.removesuffix(pod.cgroup)
            for name in pod.cgroup.split("/")[1:]:
                if self.house.cgroup2:
                    with open(f"{above}/cgroup.controllers") as file:
                        write(f"{above}/cgroup.subtree_control", " ".join(f"+{one}" for one in file.read().split()))
                above = f"{above}/{name}"
                os.makedirs(above, exist_ok=True)
                for file in ("cpuset.cpus", "cpuset.mems"):
                    if os.path.exists(f"{above}/{file}") and not self.house.cgroup2:
                        shutil.copyfile(f"{os.path.dirname(above)}/{file}", f"{above}/{file}")
        if self.house.cgroup2:
            with open(f"{directory}/cgroup.controllers") as file:
                write(f"{directory}/cgroup.subtree_control", " ".join(f"+{one}" for one in file.read().split()))

    def pod(self, network=POD, pid=CONTAINER, ipc=POD, users=None, security=(), handler=None, **linux):
        """A running pod. Removed after the scenario."""
        if network == POD and not CNI:
            raise Absent("not installed: containernetworking-plugins")
        self.count += 1
        name = f"{self.runtime}-{self.count}"
        pod = Pod(self.count, name, f"{self.dir}/pods/{name}", {"network": network, "pid": pid, "ipc": ipc, "userns_options": users})
        os.makedirs(pod.logs)
        write(f"{pod.directory}/hosts", "127.0.0.1 localhost\n")
        if not self.house.systemd:
            self.make_cgroups(pod)
        pod.config = {
            "metadata": {"name": name, "uid": pod.uid, "namespace": "default", "attempt": 0},
            "hostname": None if network else name, "log_directory": pod.logs,
            "dns_config": {"servers": ["10.96.0.10"], "searches": ["default.svc.cluster.local", "cluster.local"], "options": ["ndots:5"]},
            "labels": {"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": pod.uid},
            "annotations": {"kubernetes.io/config.source": "api"},
            "linux": {"cgroup_parent": "kubepods-burstable.slice" if self.house.systemd else pod.cgroup,
                      "security_context": {"namespace_options": pod.namespaces, "seccomp": {"profile_type": 0}, **dict(security)}, **linux},
        }
        pod.id = self.call("RunPodSandbox", config=pod.config, runtime_handler=self.runtime if handler is None else handler).pod_sandbox_id
        self.pods[pod.id] = pod
        self.started.append(pod.id)
        return pod

    def container(self, pod, command, name="main", attempt=0, image=IMAGE, resources=(), security=(), namespaces=(), mounts=(), start=True, **more):
        """A container of a pod, started: its id."""
        own = f"{pod.directory}/{name}"
        os.makedirs(own, exist_ok=True)
        message = f"{own}/{attempt}.message"
        write(message, "")
        os.chmod(message, 0o666)
        os.makedirs(f"{pod.logs}/{name}", exist_ok=True)
        security = {"masked_paths": MASKED, "readonly_paths": READ_ONLY, "seccomp": {"profile_type": 1}, **dict(security)}
        if security.get("privileged"):
            security |= {"masked_paths": [], "readonly_paths": []}
        config = {
            "metadata": {"name": name, "attempt": attempt}, "image": {"image": image}, "command": command,
            "envs": [{"key": "KUBERNETES_SERVICE_HOST", "value": "10.96.0.1"}, {"key": "KUBERNETES_SERVICE_PORT", "value": "443"}],
            "mounts": [{"container_path": "/etc/hosts", "host_path": f"{pod.directory}/hosts"},
                       {"container_path": "/dev/termination-log", "host_path": message}, *mounts],
            "labels": {"io.kubernetes.container.name": name, "io.kubernetes.pod.uid": pod.uid},
            "annotations": {"io.kubernetes.container.restartCount": str(attempt), "io.kubernetes.container.terminationMessagePath": "/dev/termination-log"},
            "log_path": f"{name}/{attempt}.log",
            "linux": {"resources": {"cpu_period": 100000, "cpu_shares": 102, "oom_score_adj": 999, **dict(resources)},
                      "security_context": security | {"namespace_options": pod.namespaces | dict(namespaces)}},
            **more,
        }
        id = self.call("CreateContainer", pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config).container_id
        if start:
            self.call("StartContainer", container_id=id)
        return id

    def stay(self, pod, **more):
        """A container that stays, and ends with 9 on SIGTERM. It is ready on return: `StartContainer` does not wait for the
        execve of every runtime."""
        id = self.container(pod, ["sh", "-c", LOOP], **more)
        if more.get("start", True):
            eventually("the container's program runs", lambda: ("stdout", "F", "started") in self.log(id))
        return id

    def status(self, id):
        return self.call("ContainerStatus", container_id=id).status

    def ended(self, id, within=15):
        """Waits for a container's end: its exit code and the reason."""
        eventually("the container ends", lambda: self.status(id).state == EXITED, within)
        status = self.status(id)
        return status.exit_code, status.reason

    def log(self, id):
        """A container's log: (stream, tag, text) of every line."""
        with open(self.status(id).log_path) as file:
            return [tuple(line.rstrip("\n").split(" ", 3)[1:]) for line in file]

    def exec(self, id, *command, within=30):
        """ExecSync: both outputs, and the status."""
        answer = self.call("ExecSync", container_id=id, cmd=command, timeout=within)
        return (answer.stdout + answer.stderr).decode(errors="replace"), answer.exit_code

    def said(self, id, *command):
        """The output of a command that has to succeed."""
        out, status = self.exec(id, *command)
        expect(status == 0, f"{command}: status {status}: {out}")
        return out

    def note(self, text):
        """Something measured, for who reads the output."""
        print(f"  {self.runtime}: {text}", flush=True)

    def versions(self):
        return [version(["containerd", "--version"]), "CRI v1", "cgroup v2" if self.house.cgroup2 else "cgroup v1"]
