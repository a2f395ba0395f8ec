"""How an attack is started: outside, in each kind of sandbox of ours, and in those of other programs."""

import json
import os
import pathlib
import shlex
import subprocess

from attacks import ATTACKS
from rig import RIG, syscall

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILT = next(iter(sorted(ROOT.glob("target/*-linux-*/debug"), reverse=True)), ROOT / "target/debug")
STOCKADE = pathlib.Path(os.environ.get("STOCKADE", BUILT / "stockade"))  # or an installed one
OCI, ABLATE, OCI_ABLATE = BUILT / "stockade-oci", BUILT / "stockade-ablate", BUILT / "stockade-oci-ablate"
ATTACK = str(RIG / "bin/attack")
OTHER = 65534
MAPPED = 100_000  # root's id in a user namespace that root creates
# The options that a command of a session has for itself.
OF_COMMAND = ("-i", "--timeout", "--kill-after", "--output-limit")
# The capabilities of a docker container.
DOCKER_CAPABILITIES = ["CAP_" + name for name in (
    "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE").split()]
DEVICES = [{"allow": True, "type": "c", "major": 1, "minor": minor, "access": "rwm"} for minor in (3, 5, 7, 8, 9)]


def become(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"] if uid else []


def direct(name, way):
    if ATTACKS[name].gift == "program":
        return [program_by(way), name]
    return [ATTACK, name, *([way] if way and ATTACKS[name].gift != "cwd" else [])]


def program_by(way):
    """The host's own program through an open directory; or a script with it as interpreter."""
    return str(RIG / "ro" / way) if way.startswith("script-") else f"/proc/self/fd/{way}{'/..' * 12}{RIG}/host/program"


class Sandboxes:
    def __init__(self, rig, degraded):
        self.rig, self.number = rig, 0
        self.landlock = 0 if "landlock" in degraded else max(0, syscall(444, None, 0, 1))
        self.degraded = [word for name in degraded for word in ("--allow-degraded", name)]

    def run(self, name, way, program=STOCKADE, environment=(), caller=0):
        """`stockade run`."""
        attack = ATTACKS[name]
        own = [str(RIG / "bin"), str(RIG / "ro")]
        command = [str(program), "run", *[word for path in own for word in ("--ro", path)], "--rw", str(RIG / "ws")]
        command += ["-e", f"VICTIM={self.rig.victim}", *self.degraded, *attack.options]
        command += ["-w", str(RIG / "ws")] if attack.gift != "cwd" else ["-w", way]
        command += ["--rootfs", str(RIG / f"hostile-{way}")] if attack.gift == "hostile" else []
        command += ["--report", str(RIG / "ws/report.json")] if attack.gift == "report" else []
        whole = lambda *options, then=direct(name, way): ["env", *environment, *become(caller), *command, *options, "--", *then]
        if attack.gift == "source":
            return one_then(whole(), whole("--rw", f"{RIG}/ws/cache:/cache", then=[ATTACK, name, "/cache"]))
        return whole()

    def session(self, name, way, caller=0):
        """A command in a session: `stockade run -d`, `exec`, and the session's end."""
        attack = ATTACKS[name]
        self.number += 1
        session, words = f"attack{os.getpid()}-{self.number}", iter(attack.options)
        of_session, of_command = [], []
        for word in words:
            value = [] if word == "-i" else [next(words)]
            (of_command if word in OF_COMMAND else of_session).extend([word, *value])
        own = [str(RIG / "bin"), str(RIG / "ro")]
        made = [str(STOCKADE), "run", "-d", "--name", session, *[word for path in own for word in ("--ro", path)], "--rw", str(RIG / "ws")]
        made += [*self.degraded, *of_session]
        made += ["--rootfs", str(RIG / f"hostile-{way}")] if attack.gift == "hostile" else []
        command = [str(STOCKADE), "exec", "-e", f"VICTIM={self.rig.victim}", *of_command]
        command += ["-w", str(RIG / "ws") if attack.gift != "cwd" else way]
        command += ["--report", str(RIG / "ws/report.json")] if attack.gift == "report" else []
        ended = [str(STOCKADE), "rm", "-f", session]

        def whole(*options, then=direct(name, way)):
            script = f"{shlex.join([*made, *options])} >/dev/null && {{ {shlex.join([*command, session, '--', *then])}; code=$?; {shlex.join(ended)}; exit $code; }}"
            return [*become(caller), "sh", "-c", script]

        if attack.gift == "source":
            return one_then(whole(), whole("--rw", f"{RIG}/ws/cache:/cache", then=[ATTACK, name, "/cache"]))
        return whole()

    # --- containers ---------------------------------------------------------------------------------------------------

    def as_docker(self, name, way, runtime, user_namespace=False):
        """With Docker's capabilities and filter."""
        config = self.spec(OCI)
        config["ociVersion"] = "1.0.2"
        config["process"]["capabilities"] = {kind: DOCKER_CAPABILITIES for kind in ("bounding", "effective", "permitted")}
        config["linux"]["seccomp"] = oci_profile(ROOT / "profiles/seccomp/docker.json", DOCKER_CAPABILITIES)
        if user_namespace:
            add_user_namespace(config, MAPPED, 65536)
        return self.container(config, name, way, runtime)

    def as_specified(self, name, way, runtime):
        """The output of the runtime's own `spec`, with Docker's filter, which its documentation recommends."""
        config = self.spec(runtime)
        own = ROOT / "target/seccomp-profiles/docker.json"
        profile = own if own.exists() else ROOT / "profiles/seccomp/docker.json"
        config["linux"]["seccomp"] = oci_profile(profile, config["process"]["capabilities"]["effective"])
        return self.container(config, name, way, runtime)

    def strictly(self, name, way, runtime, caller=0, environment=()):
        """The strictest configuration: as `stockade run`, as far as a configuration can express it."""
        config = self.spec(OCI)
        config["ociVersion"] = "1.0.2"
        process, linux = config["process"], config["linux"]
        process["capabilities"] = {kind: [] for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")}
        process["noNewPrivileges"] = True
        limits = {"CORE": 0, "NOFILE": 512, "MSGQUEUE": 0, "SIGPENDING": 1024, "MEMLOCK": 64 << 10}
        process["rlimits"] = [{"type": f"RLIMIT_{kind}", "soft": value, "hard": value} for kind, value in limits.items()]
        # Without optional parts: no sysfs, no cgroups, no queues; no terminals' group, which is not mapped.
        kept = [mount for mount in config["mounts"] if mount["destination"] in ("/proc", "/dev", "/dev/pts")]
        for mount in kept:
            mount["options"] = [option for option in mount["options"] if not option.startswith("gid=")]
        small = ["nosuid", "nodev", "mode=1777", "size=16m", "nr_inodes=1000"]
        tmpfs = [{"destination": place, "type": "tmpfs", "source": "tmpfs", "options": small} for place in ("/dev/shm", "/tmp", "/home/sandbox")]
        config["mounts"] = kept + tmpfs
        linux["maskedPaths"] += ["/proc/key-users", "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/slabinfo", "/proc/vmallocinfo", "/proc/pagetypeinfo"]
        linux["seccomp"] = oci_profile(ROOT / "profiles/seccomp/default.json", [])
        if self.landlock:
            # All rights that the kernel can enforce. Without a list of writable paths, connecting to all sockets is allowed.
            rules = {"mode": "require"}
            rules.update({"write": ["/dev/shm", "/tmp", "/home/sandbox", str(RIG / "ws")]} if self.landlock >= 3 else {})
            rules.update({"connect": [], "bind": []} if self.landlock >= 4 else {})
            config["annotations"] = {"org.stockade.landlock": json.dumps(rules)}
        if caller:
            add_user_namespace(config, caller, 1)
        else:
            add_user_namespace(config, MAPPED, 65536)
            process["user"] = {"uid": 1000, "gid": 1000}
        return ["env", *environment, *self.container(config, name, way, runtime, caller)]

    def spec(self, runtime):
        self.number += 1
        bundle = self.bundle()
        bundle.mkdir()
        subprocess.run([str(runtime), "spec"], cwd=bundle, check=True, capture_output=True)
        return json.loads((bundle / "config.json").read_text())

    def bundle(self):
        return RIG / f"bundle{self.number}"

    def container(self, config, name, way, runtime, caller=0):
        attack, process, linux = ATTACKS[name], config["process"], config["linux"]
        config["root"] = {"path": str(RIG / (f"hostile-{way}" if attack.gift == "hostile" else "rootfs")), "readonly": True}
        process.update(terminal=False, args=direct(name, way))
        process["cwd"] = way if attack.gift == "cwd" else str(RIG / "ws")
        process["env"] += [f"VICTIM={self.rig.victim}"]
        if attack.limits or not caller:
            linux["resources"] = {**linux.get("resources", {}), **attack.limits}
        if not caller:
            linux["cgroupsPath"] = f"/attack{os.getpid()}-{self.number}"
            linux["resources"].setdefault("devices", []).extend(DEVICES)
        elif not attack.limits:
            linux.pop("resources", None)
        for place, mode in [("bin", "ro"), ("ro", "ro"), ("ws", "rw")]:
            options = ["rbind", mode, "nosuid", "nodev"]
            config["mounts"].append({"destination": str(RIG / place), "type": "bind", "source": str(RIG / place), "options": options})
        (self.bundle() / "config.json").write_text(json.dumps(config))
        state = RIG / f"state{caller}"
        state.mkdir(mode=0o700, exist_ok=True)
        os.chown(state, caller, caller)
        command = [*become(caller), str(runtime), "--root", str(state)]
        # crun creates cgroups for itself even without limits, which it may not without privilege.
        command += ["--cgroup-manager=disabled"] if caller and str(runtime) == "crun" and not attack.limits else []
        command += ["run", "--bundle", str(self.bundle()), f"attack{self.number}"]
        if str(runtime) == "crun" and os.path.ismount("/sys/fs/cgroup/unified"):
            # crun supports one version of cgroups or the other, not both.
            command = ["unshare", "-m", "sh", "-c", 'umount /sys/fs/cgroup/unified; exec "$@"', "sh", *command]
        return command

    # --- bubblewrap, and no sandbox -----------------------------------------------------------------------------------

    def bwrap(self, name, way, caller):
        """All restricting flags of bubblewrap. Its caller must provide a filter."""
        attack = ATTACKS[name]
        root = RIG / (f"hostile-{way}" if attack.gift == "hostile" else "rootfs")
        command = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--assert-userns-disabled", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL",
                   "--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox", "--ro-bind", str(root), "/", "--proc", "/proc", "--dev", "/dev"]
        for place in ["/dev/shm", "/tmp", "/home/sandbox"]:
            # The attack needs these entries of a hostile root; bubblewrap may create them.
            command += ["--size", str(16 << 20), "--tmpfs", place] if attack.gift != "hostile" or place != "/home/sandbox" else []
        for place, bind in [("bin", "--ro-bind"), ("ro", "--ro-bind"), ("ws", "--bind")]:
            command += [bind, str(RIG / place), str(RIG / place)]
        command += ["--chdir", way if attack.gift == "cwd" else str(RIG / "ws"), "--setenv", "VICTIM", str(self.rig.victim)]
        return [*become(caller), *command, *direct(name, way)]

    def control(self, name, way):
        """The same without a sandbox; some in a disposable namespace or root, because they do harm."""
        attack, command = ATTACKS[name], direct(name, way)
        own = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
        if attack.control == "mount":
            return [*own, f'mount --bind {RIG}/ro {RIG}/ro && mount -o remount,bind,ro {RIG}/ro && cd {RIG}/ws && exec "$@"', "sh", *command]
        if attack.control == "chroot":
            root = RIG / "rootfs"
            binds = f"mount --bind {RIG}/bin {root}{RIG}/bin && mount --bind {RIG}/ws {root}{RIG}/ws"
            return [*own, f'{binds} && exec chroot {root} "$@"', "sh", *command]
        if attack.control == "report":
            return ["sh", "-c", f'"$@"; echo report >{RIG}/ws/report.json', "sh", *command]
        if attack.control == "hostile":
            return ["sh", "-c", f": >{RIG}/hostile-{way}/{way.rstrip('+')}/planted"]
        if attack.control == "program":
            # After an unprotected start: a chroot with all descriptors left open.
            root = RIG / "rootfs"
            binds = f"mount -t proc proc {root}/proc && mount --bind {RIG}/bin {root}{RIG}/bin && mount --bind {RIG}/ro {root}{RIG}/ro"
            return [*own, f'{binds} && exec chroot {root} "$@"', "sh", *command]
        if attack.control == "source":
            mounted = f"mount -t tmpfs tmpfs /mnt && mkdir /mnt/cache && mount --bind {RIG}/ws/cache /mnt/cache"
            return one_then(command, [*own, f'{mounted} && "$@"', "sh", ATTACK, name, "/mnt/cache"])
        return [*become(OTHER), *command] if attack.control == "nobody" else command


def one_then(first, second):
    """Both, one after the other."""
    return ["sh", "-c", f"{shlex.join(first)}; {shlex.join(second)}"]


def add_user_namespace(config, first, size):
    linux = config["linux"]
    linux["namespaces"].append({"type": "user"})
    for kind in ("uid", "gid"):
        linux[f"{kind}Mappings"] = [{"containerID": 0, "hostID": first, "size": size}]


def oci_profile(path, kept):
    """A profile in the specification's format: without entries for other machines and for capabilities that are dropped."""
    profile = json.loads(path.read_text())
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]

    def applies(rule):
        includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
        return (all(cap in kept for cap in includes.get("caps", [])) and machine in includes.get("arches", [machine])
                and not any(cap in kept for cap in excludes.get("caps", [])) and machine not in excludes.get("arches", []))

    rules = [{key: rule[key] for key in ("names", "action", "errnoRet", "args") if rule.get(key) is not None} for rule in profile["syscalls"] if applies(rule)]
    architectures = {"x86_64": ["SCMP_ARCH_X86_64"], "aarch64": ["SCMP_ARCH_AARCH64"]}[os.uname().machine]
    keys = {key: value for key, value in profile.items() if key in ("defaultAction", "defaultErrnoRet")}
    return {**keys, "architectures": architectures, "syscalls": rules}
