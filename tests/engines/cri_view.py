"""What a pod and its containers are from outside and inside, as data that two runtimes can be compared by."""

import json
import os
import re
import stat

from house import ROOT, cgroup_hierarchies, read
from scenario import Failed

# Modes of namespaces.
POD, CONTAINER, NODE, TARGET = range(4)
# States of containers.
CREATED, RUNNING, EXITED = range(3)
# Kinds of security profiles.
RUNTIME_DEFAULT, UNCONFINED, LOCALHOST = range(3)
# Kinds of propagation.
PRIVATE, HOST_TO_CONTAINER, BIDIRECTIONAL = range(3)

# What the kubelet hides and protects in every container that is not privileged.
MASKED = ["/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats",
          "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
# What docs/oci.md names as different on cgroup v1: hierarchies without controllers, and v2 beside v1, are not joined or shown.
UNJOINED, UNSHOWN = re.compile(r"0::|[0-9]+:name="), (f"{ROOT}/systemd", f"{ROOT}/unified")
# What covers hidden paths, which is each runtime's own affair.
COVERS = ("/null", "/empty-file", "/empty-directory")
STATUS = ("Umask", "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
# Files of a container's cgroup, for v1 with the controller.
LIMITS = {
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.soft_limit_in_bytes", "memory.oom_control", "memory.swappiness",
               "memory.kmem.limit_in_bytes"),
    "cpu": ("cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.rt_runtime_us", "cpu.idle"),
    "cpuset": ("cpuset.cpus", "cpuset.mems", "cpuset.cpu_exclusive"),
    "pids": ("pids.max",),
    "devices": ("devices.list",),
    "blkio": ("blkio.bfq.weight", "blkio.throttle.read_bps_device"),
    "hugetlb": ("hugetlb.2MB.limit_in_bytes", "hugetlb.1GB.limit_in_bytes"),
    "freezer": ("freezer.state",),
}
# cpu.weight is not among them: runc 1.1 computes it by an older formula.
LIMITS_OF_2 = ("memory.max", "memory.swap.max", "memory.low", "memory.min", "memory.high", "memory.oom.group", "cpu.max", "cpu.idle",
               "cpuset.cpus", "cpuset.mems", "pids.max", "io.max", "io.weight", "hugetlb.2MB.max", "hugetlb.1GB.max", "cgroup.freeze")


def pid_of(c, id):
    """The host's pid of a container's first process."""
    return json.loads(c.call("ContainerStatus", container_id=id, verbose=True).info["info"])["pid"]


def pid_of_pod(c, pod):
    """The host's pid of a pod's first process."""
    return json.loads(c.call("PodSandboxStatus", pod_sandbox_id=pod.id, verbose=True).info["info"])["pid"]


def namespace(pid, kind):
    """The namespace that a process is in."""
    return os.readlink(f"/proc/{pid}/ns/{kind}")


def status(pid):
    """The identity and privileges of a process."""
    lines = dict(line.split(":", 1) for line in read(f"/proc/{pid}/status").splitlines())
    return {name: " ".join(lines.get(name, "").split()) for name in STATUS}


def mounts(pid):
    """Mount point: what is mounted there, where the tree and the order of ids play no part."""
    found = {}
    for line in read(f"/proc/{pid}/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        _, _, _, root, point, options, *peers = before.split()
        kind, source, more = after.split(" ", 2)
        # An overlay's layers have numbers, a tmpfs its size in inodes of the host.
        more = "" if kind == "overlay" else ",".join(sorted(re.sub("nr_inodes=[0-9]+k?,?", "", more).split(",")))
        source = source if kind not in ("overlay", "tmpfs") else kind
        # Without a cgroup namespace a mount of v2 shows the container's own cgroup, as docs/oci.md says, with runc all of them.
        source, root, more = ("", "", "") if kind == "cgroup2" else (source, root, more)
        if point in UNSHOWN:
            continue
        # A bind with `rw` alone, as containerd asks for it: runc 1.1 keeps the attributes of the source, later ones replace them.
        options = set(options.split(",")) - ({"nosuid", "nodev", "noexec"} if point == "/dev/shm" else set())
        # One sysfs is shared by all of its network namespace: whether the first mount was read-only is not the container's.
        more = "" if kind == "sysfs" else more
        # The specification's `ro` of a cgroup mount; runc leaves the tmpfs above the hierarchies of v1 writable.
        options -= {"rw", "ro"} if kind == "tmpfs" and point == ROOT else set()
        if kind in ("tmpfs", "devtmpfs") and (root in COVERS or point in MASKED):
            found.setdefault(point, []).append("hidden")
            continue
        peers = " ".join(sorted(peer.split(":")[0] for peer in peers))
        found.setdefault(point, []).append(" ".join([kind, source, root, ",".join(sorted(options)), more, peers]))
    return found


def devices(directory):
    """The nodes in a container's /dev: kind, mode, owner, number."""
    found = {}
    # runc and crun add a link `core` to /proc/kcore, which is hidden.
    for entry in (entry for entry in os.scandir(directory) if entry.name != "core"):
        seen = entry.stat(follow_symlinks=False)
        number = f" {os.major(seen.st_rdev)}:{os.minor(seen.st_rdev)}" if stat.S_ISCHR(seen.st_mode) or stat.S_ISBLK(seen.st_mode) else ""
        link = " " + os.readlink(entry.path) if stat.S_ISLNK(seen.st_mode) else ""
        found[entry.name] = f"{stat.filemode(seen.st_mode)} {seen.st_uid}:{seen.st_gid}{number}{link}"
    return found


def limits(pid):
    """The limits of a process's cgroups."""
    found, memberships = {}, [line.split(":", 2) for line in read(f"/proc/{pid}/cgroup").splitlines()]
    for number, controllers, path in memberships:
        if number == "0":
            names, directory = LIMITS_OF_2, next((point for kind, point, _ in cgroup_hierarchies() if kind == "cgroup2"), "/nowhere")
        else:
            names = [file for one in controllers.split(",") for file in LIMITS.get(one, ())]
            directory = next((point for kind, point, options in cgroup_hierarchies()
                              if kind == "cgroup" and controllers in ",".join(options.split(","))), f"{ROOT}/{controllers}")
        for name in names:
            try:
                # Their order in `devices.list` means nothing.
                found[name] = sorted(read(f"{directory}{path}/{name}").splitlines())
            except OSError:
                pass
    return found


def memberships(lines):
    """The lines of /proc/PID/cgroup that count: all of v2 alone, and those with controllers of v1."""
    return lines if os.path.exists(f"{ROOT}/cgroup.controllers") else [line for line in lines if not UNJOINED.match(line)]


def from_outside(pid):
    """Everything that /proc and the cgroups say about a container's process."""
    return {
        "status": status(pid), "mounts": mounts(pid), "limits": limits(pid), "devices": devices(f"/proc/{pid}/root/dev"),
        "rlimits": read(f"/proc/{pid}/limits").splitlines(), "oom_score_adj": read(f"/proc/{pid}/oom_score_adj"),
        "environment": sorted(read(f"/proc/{pid}/environ").split("\0")), "directory": os.readlink(f"/proc/{pid}/cwd"),
        "cgroups": memberships(read(f"/proc/{pid}/cgroup").splitlines()), "maps": (read(f"/proc/{pid}/uid_map"), read(f"/proc/{pid}/gid_map")),
        "descriptors": {fd: re.sub("[0-9]+", "N", os.readlink(f"/proc/{pid}/fd/{fd}")) for fd in os.listdir(f"/proc/{pid}/fd")},
        "own namespaces": [kind for kind in NAMESPACES if namespace(pid, kind) != namespace("self", kind)],
    }


INSIDE = r"""
grep -E '^(Umask|Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp|Seccomp_filters):' /proc/self/status
cat /proc/self/limits /proc/self/cgroup /proc/self/oom_score_adj /proc/self/uid_map
env | sort; pwd; hostname; cat /etc/resolv.conf; readlink /proc/self/fd/0
ls /proc/self/fd | wc -l; cat /proc/sys/kernel/domainname; ls -ln / /dev
"""


def from_inside(c, id):
    """What a process that the kubelet executes in the container sees."""
    out = c.call("ExecSync", container_id=id, cmd=["sh", "-c", INSIDE], timeout=20)
    if out.exit_code:
        raise Failed(f"the view from inside: {out.stderr.decode(errors='replace')}")
    # The times and sizes of files tell nothing.
    text = re.sub(r" +[0-9]+ [A-Z][a-z]{2} +[0-9]+ +[0-9:]+ ", " ", out.stdout.decode(errors="replace"))
    lines = [line for line in text.splitlines() if not (line.startswith("dr-x") and line.endswith(" proc") or line.endswith("/proc/kcore"))]
    return memberships(lines)


def portrait(c, pod, id):
    """A container as data, without the names that differ from run to run."""
    return nameless(pod, id, {"outside": from_outside(pid_of(c, id)), "inside": from_inside(c, id)})


def nameless(pod, id, seen):
    """Data without the names that differ from run to run."""
    text = json.dumps(seen)
    for name, stands_for in ((id, "CONTAINER"), (pod.id, "POD"), (pod.name, "NAME"), (pod.uid, "UID")):
        text = text.replace(name, stands_for)
    return json.loads(text)
