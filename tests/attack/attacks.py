"""The attacks: what each is, how it shows that it works, what it is given, and what could matter to it."""

from dataclasses import dataclass, field

from rig import LIES


@dataclass
class Attack:
    title: str
    ways: list = field(default_factory=lambda: [""])
    # How it is tried without a sandbox: plain, in an own mount namespace with a read-only bind, in a chroot; or by name.
    control: str = "plain"
    options: list = field(default_factory=list)  # for stockade run
    gift: str = ""  # what the caller is careless enough to hand over: descriptors, terminal, cwd, hostile
    limits: dict = field(default_factory=dict)  # of the container
    absent: dict = field(default_factory=dict)  # kinds of sandbox that it makes no sense in, and why
    layers: tuple = ()  # protections that could matter, where trying each takes long; all if empty
    deadline: float = 20
    open_below_landlock: int = 0  # is known to get through, and documented, where Landlock is older than this


BUDGET = ("budget", "rlimits", "scratch")
# Kinds of sandbox, and what some of them do not claim to do.
REPORT = dict.fromkeys(("oci", "runc", "crun", "bwrap"), "writes no report to a place of the caller's choice")
DEADLINE = dict.fromkeys(("oci", "runc", "crun", "bwrap"), "has no time limit: what does not end is ended by who started it")
OUTPUT = dict.fromkeys(("oci", "runc", "crun", "bwrap"), "passes output on as it is: bounding it is for who reads it")
LIMITS = {"bwrap": "sets no limits: they are the caller's"}

ATTACKS = {
    "D01": Attack("read files of the host by their paths"),
    "D02": Attack("climb out with .., /proc/PID/root, /proc/PID/cwd, descriptors"),
    "D03": Attack("find the host's mounts in the mount table"),
    "D04": Attack("change a read-only root", control="chroot"),
    "D05": Attack("change a read-only bind: write, mode, owner, times, attributes, names"),
    "D06": Attack("remount, unmount, mount", control="mount"),
    "D07": Attack("leave by a chroot of one's own", control="chroot"),
    "D08": Attack("use descriptors that the caller left open", gift="descriptors"),
    "D09": Attack("start in a directory outside", gift="cwd", control="cwd", layers=("fds", "root", "landlock", "seccomp", "nnp")),
    "D10": Attack("links in the workspace that lead outside"),
    "D11": Attack("a link where the report is going to be written", gift="report", control="report", absent=REPORT),
    "D12": Attack("an image whose directories are links to the host's", ways=list(LIES), gift="hostile", control="hostile", layers=("user", "ids", "root", "readonly", "landlock", "seccomp")),
    "D13": Attack("read what the kernel tells about the host"),
    "D14": Attack("open the kernel's settings for writing"),
    "D15": Attack("mount and change cgroups", control="mount"),
    "D16": Attack("make device nodes and open them"),
    "D17": Attack("make set-user-id programs"),
    "D18": Attack("execute programs with file capabilities", control="nobody"),
    "D19": Attack("link and rename between mounts"),
    "D20": Attack("open devices"),
    "D21": Attack("make namespaces: unshare, clone"),
    "D22": Attack("make namespaces: clone3; choose a process id; be born into a cgroup"),
    "D23": Attack("enter namespaces"),
    "D24": Attack("io_uring"),
    "D25": Attack("system calls by the door of 32-bit programs"),
    "D26": Attack("system calls by their x32 numbers"),
    "D27": Attack("be traced, and stop", options=["--timeout", "1", "--kill-after", "200ms"], deadline=4, absent=DEADLINE, layers=("seccomp", "guards", "landlock", "budget", "session", "dumpable", "nnp")),
    "D28": Attack("trace, read and signal other processes"),
    "D29": Attack("search the caller's keyrings"),
    "D30": Attack("privileged system calls"),
    "D31": Attack("sockets of every family, type and protocol", layers=("seccomp", "guards", "landlock", "caps", "net", "user", "ids", "nnp")),
    "D32": Attack("type into the caller's terminal", gift="terminal", options=["-i"]),
    "D33": Attack("protocols and filters on sockets"),
    "D34": Attack("personalities"),
    "D35": Attack("filters and no_new_privs"),
    "D36": Attack("get capabilities and ids"),
    "D37": Attack("TCP to the host"),
    "D38": Attack("TCP to the network"),
    "D39": Attack("UDP, and sockets of resolvers"),
    "D40": Attack("abstract sockets of the host"),
    "D41": Attack("sockets in the host's files"),
    "D41-bound": Attack("a socket in a directory that was bound", open_below_landlock=9),
    "D48": Attack("more processes and threads", absent=LIMITS, ways=["processes", "threads"], options=["--pids-limit", "64"], limits={"pids": {"limit": 64}}, layers=("budget", "rlimits", "seccomp", "landlock")),
    "D49": Attack("more memory", absent=LIMITS, ways=["heap", "shared", "memfd", "pipes", "tables"], options=["--memory", "64M"], limits={"memory": {"limit": 64 << 20}}, layers=BUDGET),
    "D50": Attack("fill temporary directories", options=["--scratch-size", "16M"], layers=BUDGET + ("nnp",)),
    "D51": Attack("fill them with files", absent=LIMITS, options=["--scratch-inodes", "1000"], layers=BUDGET),
    "D52": Attack("more descriptors", absent=LIMITS, layers=BUDGET + ("caps",)),
    "D53": Attack("more CPU time", absent=LIMITS, options=["--cpus", "0.25"], limits={"cpu": {"quota": 25000, "period": 100000}}, layers=("budget", "rlimits", "caps")),
    "D54": Attack("print more than was asked for", options=["--output-limit", "1M"], gift="printing", absent=OUTPUT, layers=("budget", "rlimits")),
    "D55": Attack("stay behind as a daemon", layers=("budget", "session", "seccomp", "cgroupns", "dumpable", "landlock", "nnp")),
    "D56": Attack("stop everything, at the time limit", options=["--timeout", "1", "--kill-after", "200ms"], deadline=4, absent=DEADLINE, layers=("budget", "session", "seccomp", "landlock", "nnp")),
}

# Protections of `stockade run` that the ablation build leaves out one at a time, by their names there.
LAYERS = {
    "user": "user namespace",
    "net": "network namespace",
    "ipc": "IPC namespace",
    "uts": "UTS namespace",
    "cgroupns": "cgroup namespace",
    "nslimits": "limits on further namespaces",
    "root": "letting go of the old root",
    "readonly": "read-only mounts",
    "nosuid": "nosuid on mounts",
    "nodev": "nodev on mounts",
    "masks": "masked and frozen paths in /proc",
    "caps": "dropping capabilities",
    "nnp": "no_new_privs, and with it seccomp and Landlock",
    "seccomp": "seccomp profile",
    "guards": "guards beside the profile",
    "landlock": "Landlock",
    "ids": "an id of nobody's",
    "keyring": "own session keyring",
    "fds": "closing descriptors",
    "session": "own session",
    "dumpable": "init that cannot be looked into",
    "budget": "cgroup",
    "rlimits": "resource limits",
    "scratch": "size of temporary directories",
}
# Those of containers of `stockade-oci`, whose configuration gives nothing away.
OCI_LAYERS = {
    "user": "user namespace",
    "pid": "pid namespace",
    "net": "network namespace",
    "ipc": "IPC namespace",
    "uts": "UTS namespace",
    "cgroupns": "cgroup namespace",
    "root": "letting go of the old root",
    "readonly": "read-only mounts",
    "nosuid": "nosuid on mounts",
    "nodev": "nodev on mounts",
    "masks": "masked and read-only paths",
    "caps": "dropping capabilities",
    "nnp": "no_new_privs, and with it seccomp and Landlock",
    "seccomp": "seccomp profile",
    "landlock": "Landlock",
    "ids": "an id of nobody's",
    "keyring": "own session keyring",
    "fds": "closing descriptors",
    "session": "own session",
    "devices": "rules for device nodes",
    "budget": "limits of the cgroups",
    "rlimits": "resource limits",
}
# What one protection alone stops, where that is known, in plain words. Anything else that gets through when a protection is left
# out fails the battery.
ALONE = {
    "D04": "the made-up root is a tmpfs of the sandbox's own: without read-only mounts the workload changes its own copy of `/etc`, and nothing of the host's",
    "D05": "to files of the caller's own in a read-only bind, when the caller is not root, their read-only mount alone stops changes of mode, times and attributes, which Landlock does not see",
    "D08": "a socket that the caller left open is then the workload's; a directory is not to be read through, because of Landlock",
    "D13": "`/proc/keys` and `/proc/key-users` are covered and nothing else hides them; what `/proc` has for root alone (page counts, slabs, kernel mappings) is held by the id alone, which is never root's",
    "D17": "modes are seen by the filter alone: by the default profile, or by a guard beside any other. Without both, a workload could leave set-user-id programs of the caller's in a writable bind",
    "D18": "a kept capability is one over the sandbox's own user namespace; that it leads nowhere is what the other attacks show",
    "D24": "the calls of io_uring are then reached; a file outside is not",
    "D25": "the other door is then open; what is asked for there is stopped as it is at the first",
    "D27": "tracing is then possible; the init lets its tracees go, and the run ends on time",
    "D29": "keys of its own can then be made, those of the caller's are still not found",
    "D30": "where the kernel lets everybody read its log (`kernel.dmesg_restrict` 0), the filter alone stops that",
    "D31": "the kernel's code for other socket families is then reached",
    "D34": "how its own addresses are laid out is then the workload's choice",
    "D35": "it can then listen to filters of its own",
    "D36": "a kept capability is one over the sandbox's own user namespace; that it leads nowhere is what the other attacks show",
    "D40": "the names of the host's abstract sockets are then listed; connecting is stopped by Landlock",
    "D41-bound": "a socket in a directory that was bound is refused by Landlock alone, from ABI 9 on",
    "D48": "without a cgroup, the limit on processes counts those of the user and is higher",
    "D49": "without a cgroup, the limits on memory count for each process and are higher",
    "D53": "without a cgroup, nothing limits the share of the CPUs, only the time that each process may use",
    "D50": "without the size of the temporary directories, only the budget's memory bounds them",
    "D51": "without the size of the temporary directories, only the budget's memory bounds them",
    "D52": "the number of descriptors is bounded by a resource limit alone; their memory by the budget",
}
# The same of containers. What holds for both is above.
OCI_ALONE = {name: ALONE[name] for name in ("D18", "D29", "D31", "D34", "D40", "D52")} | {
    "D04": "where files of the root belong to the container's own user, their read-only mount alone stops changes of mode, which Landlock does not see",
    "D05": "to files of the container's own user in a read-only bind, their read-only mount alone stops changes of mode, times and attributes, which Landlock does not see",
    "D13": "`/proc/keys` and `/proc/key-users` are covered, as the configuration asks, and nothing else hides them",
    "D17": "modes are seen by the filter alone: without it, a container could leave set-user-id programs of its own user in a writable bind",
    "D21": "namespaces inside are then the container's to make, in which it has capabilities of its own: a configuration has no words for a limit on them, which `stockade run` sets as well",
    "D22": "as D21",
    "D30": "processes of the same user in the same container can then move each other's memory between nodes",
    "D48": "what a configuration bounds of processes, memory and CPUs is bounded by cgroups alone",
    "D49": "as D48",
    "D53": "as D48",
    "D35": "it can then listen to filters of its own, and add some; none of them takes one away that is there",
    "D36": "a kept capability is one over the container's own user namespace, and so are the ids that it can take; that it leads nowhere is what the other attacks show",
}
# Neither can be left out alone: everything else is built upon them.
INSEPARABLE = "mount namespace, pid namespace"
