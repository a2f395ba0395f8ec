"""The attacks: description, proof that it works outside, options, and the protections that may stop it."""

from dataclasses import dataclass, field

from outside import OPTIONS
from rig import LIES


@dataclass
class Attack:
    title: str
    ways: list = field(default_factory=lambda: [""])
    # How it runs without a sandbox: plain, in a private mount namespace with a read-only bind, in a chroot; or by name.
    control: str = "plain"
    options: list = field(default_factory=list)  # for stockade run
    # Things that a careless caller passes on, and observers outside: descriptors, terminal, cwd, hostile, program, source,
    # streams, neighbour, report, printing.
    gift: str = ""
    limits: dict = field(default_factory=dict)  # of the container
    absent: dict = field(default_factory=dict)  # kinds of sandbox where it does not apply, with the reason
    layers: tuple = ()  # protections to remove, if all would take too long; all if empty
    deadline: float = 20
    open_below_landlock: int = 0  # a documented gap if Landlock is older than this


BUDGET = ("budget", "rlimits", "scratch")
# Kinds of sandbox, and the claims that some of them do not make.
REPORT = dict.fromkeys(("oci", "runc", "crun", "bwrap"), "writes no report to a place that the caller chooses")
DEADLINE = dict.fromkeys(("oci", "runc", "crun", "bwrap"), "has no time limit: the caller has to end it")
OUTPUT = dict.fromkeys(("oci", "runc", "crun", "bwrap"), "passes output on unchanged: the reader has to limit it")
LIMITS = {"bwrap": "sets no limits: the caller has to"}
WATCHES = dict.fromkeys(("oci", "runc", "crun", "bwrap"), "has no option for a limit on file watches")
SOURCES = dict.fromkeys(("oci", "runc", "crun", "bwrap"), "follows links in the sources of mounts: the caller has to name them")
STREAMS = dict.fromkeys(("oci", "runc", "crun", "bwrap"), "hands its standard streams on unchanged: the caller makes them")
NAMES = dict.fromkeys(("oci", "runc", "crun", "bwrap"), "has no network access by name")
# Checks of rules for hosts, which other attacks do not meet.
CHECKS = ("names", "connections", "addresses", "servername")
INIT = dict.fromkeys(("oci", "runc", "crun"), "give a container no pid 1 but its own program")
# Programs of the host through the links of /proc: descriptors of the caller, and descriptors of a runtime.
PROGRAMS = [f"{what}{number}" for what in ("", "script-") for number in (40, 41)] + [str(number) for number in range(3, 13)]

ATTACKS = {
    "D01": Attack("read files of the host by their paths"),
    "D02": Attack("climb out with .., /proc/PID/root, /proc/PID/cwd, descriptors"),
    "D03": Attack("find the host's mounts in the mount table"),
    "D04": Attack("change a read-only root", control="chroot"),
    "D05": Attack("change a read-only bind: write, mode, owner, times, attributes, names"),
    "D06": Attack("remount, unmount, mount", control="mount"),
    "D07": Attack("leave with an own chroot", control="chroot"),
    "D08": Attack("use descriptors that the caller left open", gift="descriptors"),
    "D09": Attack("start in a directory outside", gift="cwd", control="cwd", layers=("fds", "root", "landlock", "seccomp", "nnp")),
    "D10": Attack("links in the workspace that lead outside"),
    "D11": Attack("a link at the place of the report", gift="report", control="report", absent=REPORT),
    "D12": Attack("an image whose directories are links to the host", ways=list(LIES), gift="hostile", control="hostile", layers=("user", "ids", "root", "readonly", "landlock", "seccomp")),
    "D13": Attack("read kernel information about the host"),
    "D14": Attack("open the kernel's settings for writing"),
    "D15": Attack("mount and change cgroups", control="mount"),
    "D16": Attack("make device nodes and open them"),
    "D17": Attack("make set-user-id programs"),
    "D18": Attack("execute programs with file capabilities", control="nobody"),
    "D19": Attack("link and rename between mounts"),
    "D20": Attack("open devices"),
    "D21": Attack("make namespaces: unshare, clone"),
    "D22": Attack("make namespaces with clone3; choose a process id; start in a cgroup"),
    "D23": Attack("enter namespaces"),
    "D24": Attack("io_uring"),
    "D25": Attack("system calls through the 32-bit entry"),
    "D26": Attack("system calls with x32 numbers"),
    "D27": Attack("become traced, and stop", options=["--timeout", "1", "--kill-after", "200ms"], deadline=4, absent=DEADLINE, layers=("seccomp", "guards", "landlock", "budget", "session", "dumpable", "nnp")),
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
    "D42": Attack("names and addresses without a rule", options=OPTIONS, absent=NAMES, layers=("seccomp", "landlock") + CHECKS),
    "D43": Attack("an allowed name that leads to a cloud's metadata", options=OPTIONS, absent=NAMES, layers=("landlock",) + CHECKS),
    "D44": Attack("an allowed name that leads to inner addresses", options=OPTIONS, absent=NAMES, layers=("landlock",) + CHECKS),
    "D45": Attack("an allowed name whose address changes", options=OPTIONS, absent=NAMES, layers=("landlock",) + CHECKS),
    "D46": Attack("questions whose names are not what they seem", options=OPTIONS, absent=NAMES, layers=("landlock",) + CHECKS, deadline=60),
    "D47": Attack("TLS for another host behind an allowed name", options=OPTIONS, absent=NAMES, layers=("landlock",) + CHECKS, deadline=60),
    "D48": Attack("more processes and threads", absent=LIMITS, ways=["processes", "threads"], options=["--pids-limit", "64"], limits={"pids": {"limit": 64}}, layers=("budget", "rlimits", "seccomp", "landlock")),
    "D49": Attack("more memory", absent=LIMITS, ways=["heap", "shared", "memfd", "pipes", "tables"], options=["--memory", "64M"], limits={"memory": {"limit": 64 << 20}}, layers=BUDGET),
    "D50": Attack("fill temporary directories", options=["--scratch-size", "16M"], layers=BUDGET + ("nnp",)),
    "D51": Attack("fill them with files", absent=LIMITS, options=["--scratch-inodes", "1000"], layers=BUDGET),
    "D52": Attack("more descriptors", absent=LIMITS, layers=BUDGET + ("caps",)),
    "D53": Attack("more CPU time", absent=LIMITS, options=["--cpus", "0.25"], limits={"cpu": {"quota": 25000, "period": 100000}}, layers=("budget", "rlimits", "caps")),
    "D54": Attack("print more than the limit", options=["--output-limit", "1M"], gift="printing", absent=OUTPUT, layers=("budget", "rlimits")),
    "D55": Attack("stay behind as a daemon", layers=("budget", "session", "seccomp", "cgroupns", "dumpable", "landlock", "nnp")),
    "D56": Attack("stop everything, at the time limit", options=["--timeout", "1", "--kill-after", "200ms"], deadline=4, absent=DEADLINE, layers=("budget", "session", "seccomp", "landlock", "nnp")),
    "D57": Attack("leave no file watches to the caller's other processes", control="nobody", gift="neighbour", ways=["watches"], absent=WATCHES, layers=("nslimits", "user", "ids", "rlimits", "seccomp", "landlock", "nnp")),
    "D58": Attack("leave them no signals, queues or descriptors in flight", control="nobody", gift="neighbour", absent=LIMITS, ways=["signals", "queues", "descriptors"], options=["--ulimit", "nofile=512"], layers=BUDGET + ("user", "ids", "seccomp", "nnp")),
    "D59": Attack("start a program or an interpreter of the host's", ways=PROGRAMS, gift="program", control="program"),
    "D60": Attack("leave a link where the next run finds a source", gift="source", control="source", absent=SOURCES, layers=("user", "ids", "root", "readonly", "landlock", "seccomp")),
    "D61": Attack("leave the caller's streams with O_NONBLOCK", gift="streams", absent=STREAMS, layers=("fds", "seccomp", "landlock", "nnp")),
    "D62": Attack("change limits and scheduling of pid 1", absent=INIT),
}

# Protections of `stockade run` that the ablation build can omit, by their names there.
LAYERS = {
    "user": "user namespace",
    "net": "network namespace",
    "ipc": "IPC namespace",
    "uts": "UTS namespace",
    "cgroupns": "cgroup namespace",
    "nslimits": "limits on further namespaces and on file watches",
    "root": "detaching the old root",
    "readonly": "read-only mounts",
    "nosuid": "nosuid on mounts",
    "nodev": "nodev on mounts",
    "masks": "masked and read-only paths in /proc",
    "caps": "dropping capabilities",
    "nnp": "no_new_privs, and with it seccomp and Landlock",
    "seccomp": "seccomp profile",
    "guards": "guards beside the profile",
    "landlock": "Landlock",
    "ids": "an unused host id",
    "keyring": "own session keyring",
    "fds": "closing descriptors",
    "session": "own session",
    "dumpable": "init that is not dumpable",
    "budget": "cgroup",
    "rlimits": "resource limits",
    "scratch": "size of temporary directories",
    "names": "rules before a name gets an address",
    "connections": "rules before a connection is made, and while it is open",
    "addresses": "the check of the addresses of names",
    "servername": "the comparison of TLS server names",
}
# The same for containers of `stockade-oci` with a strict configuration.
OCI_LAYERS = {
    "user": "user namespace",
    "pid": "pid namespace",
    "net": "network namespace",
    "ipc": "IPC namespace",
    "uts": "UTS namespace",
    "cgroupns": "cgroup namespace",
    "root": "detaching the old root",
    "readonly": "read-only mounts",
    "nosuid": "nosuid on mounts",
    "nodev": "nodev on mounts",
    "masks": "masked and read-only paths",
    "caps": "dropping capabilities",
    "nnp": "no_new_privs, and with it seccomp and Landlock",
    "seccomp": "seccomp profile",
    "landlock": "Landlock",
    "ids": "an unused host id",
    "keyring": "own session keyring",
    "fds": "closing descriptors",
    "session": "own session",
    "devices": "rules for device nodes",
    "budget": "limits of the cgroups",
    "rlimits": "resource limits",
}
# The attacks that one protection alone stops, and what that means. Any other attack that succeeds when a protection is removed fails the
# battery.
ALONE = {
    "D04": "the generated root is the sandbox's own tmpfs: without read-only mounts the workload changes its own copy of `/etc`, not the host's",
    "D05": "if the caller is not root, only the read-only mount stops changes of mode, times and attributes of the caller's own files in a read-only bind: Landlock does not cover them",
    "D08": "the workload can use a socket that the caller left open. Landlock still prevents reading through a directory",
    "D13": "only the masks hide `/proc/keys` and `/proc/key-users`. Only the id, which is never root's, protects the files that root alone may read (page counts, slabs, kernel mappings)",
    "D17": "only the filter checks modes: the default profile, or a guard beside any other. Without both, a workload could leave set-user-id programs of the caller's in a writable bind",
    "D18": "the capability applies to the sandbox's own user namespace only; the other attacks show that it leads nowhere",
    "D24": "the workload can make io_uring calls, but reaches no file outside",
    "D25": "the 32-bit table is reachable; its calls are stopped as in the native one",
    "D29": "the workload can create keys of its own, but does not find the caller's",
    "D30": "where every user may read the kernel log (`kernel.dmesg_restrict` 0), only the filter stops it",
    "D31": "the kernel's code for other socket families is reachable",
    "D34": "the workload can choose its own address layout",
    "D35": "the workload can listen to its own filters",
    "D36": "the capability applies to the sandbox's own user namespace only; the other attacks show that it leads nowhere",
    "D37": "by default only the network namespace keeps TCP and UDP from the host and its networks; with `--network none` the filter refuses the sockets too",
    "D38": "as D37",
    "D39": "as D37",
    "D40": "the names of the host's abstract sockets are visible; Landlock stops connections",
    "D41-bound": "only Landlock refuses a socket in a bound directory, from ABI 9 on",
    "D42": "without rules before a name gets an address, the workload gets addresses that stand for other names; no connection to them is made, and no name server is asked. Only the rules before a connection keep it from ports of an allowed name that a rule for a network takes on every address",
    "D43": "only the check of addresses stops the owner of an allowed name from pointing it at private addresses",
    "D44": "as D43",
    "D45": "as D43",
    "D46": "as D42: addresses that stand for other names",
    "D47": "only the comparison of server names keeps TLS for another host from a server of an allowed name",
    "D48": "without a cgroup, the limit on processes counts all processes of the user and is higher",
    "D49": "without a cgroup, the limits on memory apply to each process and are higher",
    "D53": "without a cgroup, only the CPU time of each process is limited, not the share of the CPUs",
    "D50": "without a size, only the memory budget limits the temporary directories",
    "D51": "without a size, only the memory budget limits the temporary directories",
    "D52": "only a resource limit bounds the number of descriptors; the budget bounds their memory",
    "D57": "the sandbox can take as many watches as a user may have, if its user is the caller's or counts for it",
    "D58": "only resource limits bound signals and descriptors in flight; queues are also refused by the filter",
    "D62": "only the guard protects limits and scheduling of pid 1; the supervisor, outside, still ends the run on time",
}
# The same for containers. Common entries are above.
OCI_ALONE = {name: ALONE[name] for name in ("D18", "D29", "D31", "D34", "D40", "D52")} | {
    "D04": "where files of the root belong to the container's own user, only their read-only mount stops changes of mode: Landlock does not cover them",
    "D05": "only the read-only mount stops changes of mode, times and attributes of the container user's files in a read-only bind: Landlock does not cover them",
    "D13": "only the configuration's masks hide `/proc/keys` and `/proc/key-users`",
    "D17": "only the filter checks modes: without it, a container could leave set-user-id programs of its own user in a writable bind",
    "D21": "the container can create namespaces, in which it has capabilities. `stockade run` also limits their number; a configuration cannot express this",
    "D22": "as D21",
    "D30": "processes of the same user in the same container can move each other's memory between nodes",
    "D58": "only resource limits bound signals and descriptors in flight, where the configuration sets them",
    "D48": "only cgroups enforce a configuration's limits on processes, memory and CPUs",
    "D49": "as D48",
    "D53": "as D48",
    "D35": "the container can listen to its own filters and add filters; none of them removes an existing one",
    "D36": "the capability and the ids apply to the container's own user namespace only; the other attacks show that they lead nowhere",
}
# These cannot be removed alone: everything else depends on them.
INSEPARABLE = "mount namespace, pid namespace"
