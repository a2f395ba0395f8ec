"""Runs the attacks in every kind of sandbox and prints who stopped what."""

import fcntl
import json
import os
import pathlib
import pty
import shutil
import signal
import socket
import subprocess
import termios
import time
from dataclasses import dataclass, field

from attacks import ALONE, ATTACKS, LAYERS
from rig import RIG, Rig, syscall

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILT = next(iter(sorted(ROOT.glob("target/*-linux-gnu/debug"))), ROOT / "target/debug")
STOCKADE = pathlib.Path(os.environ.get("STOCKADE", BUILT / "stockade"))  # or one that is installed
OCI, ABLATE = BUILT / "stockade-oci", BUILT / "stockade-ablate"
ATTACK = str(RIG / "bin/attack")
OTHER = 65534
# What a container of docker's keeps.
DOCKER_CAPABILITIES = ["CAP_" + name for name in (
    "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE").split()]


@dataclass
class Result:
    """What came of an attack in one place."""
    tries: dict = field(default_factory=dict)  # name: result
    details: dict = field(default_factory=dict)
    songs: list = field(default_factory=list)
    refused: str = ""
    absent: str = ""

    @property
    def got(self):
        return [name for name, result in self.tries.items() if result == "ok"]

    @property
    def open(self):
        return bool(self.got or self.songs)

    def summary(self):
        """The ways that got somewhere, and the canaries."""
        return sorted(self.got) + self.songs


def run(base, options):
    battery = Battery(base, options)
    try:
        return battery.all()
    finally:
        battery.rig.stop_victim()
        for left in [*pathlib.Path("/sys/fs/cgroup").glob(f"*/attack{os.getpid()}-*"), *pathlib.Path("/sys/fs/cgroup").glob(f"attack{os.getpid()}-*")]:
            left.rmdir()


class Battery:
    def __init__(self, base, options):
        self.options, self.base = options, base
        self.rig = Rig(base, BUILT / "examples/attack")
        self.rig.start_victim(0)
        wanted = options.only.split(",") if options.only else list(ATTACKS)
        self.attacks = {name: ATTACKS[name] for name in wanted}
        self.degraded = [word for name in options.degraded for word in ("--allow-degraded", name)]
        self.number = 0
        self.landlock = 0 if "landlock" in options.degraded else max(0, syscall(444, None, 0, 1))

    # --- the kinds of sandbox --------------------------------------------------------------------------------------------

    def run_command(self, name, way, program=STOCKADE, environment=(), caller=0):
        attack = ATTACKS[name]
        own = [str(RIG / "bin"), str(RIG / "ro")]
        command = [str(program), "run", *[word for path in own for word in ("--ro", path)], "--rw", str(RIG / "ws")]
        command += ["-e", f"VICTIM={self.rig.victim}", *self.degraded, *attack.options]
        command += ["-w", str(RIG / "ws")] if attack.gift != "cwd" else ["-w", way]
        command += ["--rootfs", str(RIG / f"hostile-{way}")] if attack.gift == "hostile" else []
        command += ["--report", str(RIG / "ws/report.json")] if attack.gift == "report" else []
        command += ["--", ATTACK, name, *([way] if way and attack.gift != "cwd" else [])]
        return ["env", *environment, *self.become(caller), *command]

    def become(self, uid):
        return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"] if uid else []

    def oci_command(self, name, way, runtime, user_namespace=False):
        attack = ATTACKS[name]
        self.number += 1
        bundle = RIG / f"bundle{self.number}"
        bundle.mkdir()
        config = json.loads(subprocess.run([OCI, "spec", "--bundle", bundle], check=True, capture_output=True) and (bundle / "config.json").read_text())
        config["ociVersion"] = "1.0.2"
        config["root"] = {"path": str(RIG / (f"hostile-{way}" if attack.gift == "hostile" else "rootfs")), "readonly": True}
        process, linux = config["process"], config["linux"]
        process.update(terminal=False, args=[ATTACK, name, *([way] if way and attack.gift != "cwd" else [])])
        process["cwd"] = way if attack.gift == "cwd" else str(RIG / "ws")
        process["env"] += [f"VICTIM={self.rig.victim}"]
        process["capabilities"] = {kind: DOCKER_CAPABILITIES for kind in ("bounding", "effective", "permitted")}
        linux["seccomp"] = self.docker_profile()
        linux["cgroupsPath"] = f"/attack{os.getpid()}-{self.number}"
        linux["resources"].update(attack.limits)
        linux["resources"]["devices"] += [{"allow": True, "type": "c", "major": 1, "minor": minor, "access": "rwm"} for minor in (3, 5, 7, 8, 9)]
        if user_namespace:
            linux["namespaces"].append({"type": "user"})
            for kind in ("uid", "gid"):
                linux[f"{kind}Mappings"] = [{"containerID": 0, "hostID": 100_000, "size": 65536}]
        for place, mode in [("bin", "ro"), ("ro", "ro"), ("ws", "rw")]:
            options = ["rbind", mode, "nosuid", "nodev"]
            config["mounts"].append({"destination": str(RIG / place), "type": "bind", "source": str(RIG / place), "options": options})
        (bundle / "config.json").write_text(json.dumps(config))
        command = [str(runtime), "--root", str(RIG / "state"), "run", "--bundle", str(bundle), f"attack{self.number}"]
        if "crun" in str(runtime) and os.path.ismount("/sys/fs/cgroup/unified"):
            # It takes one version of cgroups or the other, not both.
            command = ["unshare", "-m", "sh", "-c", 'umount /sys/fs/cgroup/unified; exec "$@"', "sh", *command]
        return command

    def docker_profile(self):
        """Docker's own, without what it says about other machines and for capabilities that are not kept."""
        profile = json.loads((ROOT / "profiles/seccomp/docker.json").read_text())
        machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]

        def applies(rule):
            includes, excludes = rule.pop("includes", {}), rule.pop("excludes", {})
            kept = set(DOCKER_CAPABILITIES)
            return (all(cap in kept for cap in includes.get("caps", [])) and machine in includes.get("arches", [machine])
                    and not any(cap in kept for cap in excludes.get("caps", [])) and machine not in excludes.get("arches", []))

        rules = [{key: value for key, value in rule.items() if key in ("names", "action", "errnoRet", "args")} for rule in profile["syscalls"] if applies(rule)]
        architectures = {"x86_64": ["SCMP_ARCH_X86_64"], "aarch64": ["SCMP_ARCH_AARCH64"]}[os.uname().machine]
        keys = {key: value for key, value in profile.items() if key in ("defaultAction", "defaultErrnoRet")}
        return {**keys, "architectures": architectures, "syscalls": rules}

    def bwrap_command(self, name, way):
        attack = ATTACKS[name]
        command = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib",
                   "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/bin", "/bin", "--ro-bind", "/etc/passwd", "/etc/passwd", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        for place, bind in [("bin", "--ro-bind"), ("ro", "--ro-bind"), ("ws", "--bind")]:
            command += [bind, str(RIG / place), str(RIG / place)]
        command += ["--chdir", way if attack.gift == "cwd" else str(RIG / "ws"), "--setenv", "VICTIM", str(self.rig.victim)]
        return [*command, ATTACK, name, *([way] if way and attack.gift != "cwd" else [])]

    def control_command(self, name, way):
        """The same without a sandbox; some in a namespace or root that is thrown away, for the harm they do."""
        attack = ATTACKS[name]
        direct = [ATTACK, name, *([way] if way and attack.gift != "cwd" else [])]
        own = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
        if attack.control == "mount":
            return [*own, f'mount --bind {RIG}/ro {RIG}/ro && mount -o remount,bind,ro {RIG}/ro && cd {RIG}/ws && exec "$@"', "sh", *direct]
        if attack.control == "chroot":
            root = RIG / "rootfs"
            binds = f"mount --bind {RIG}/bin {root}{RIG}/bin && mount --bind {RIG}/ws {root}{RIG}/ws"
            return [*own, f'{binds} && exec chroot {root} "$@"', "sh", *direct]
        if attack.control == "report":
            return ["sh", "-c", f'"$@"; echo report >{RIG}/ws/report.json', "sh", *direct]
        if attack.control == "hostile":
            return ["sh", "-c", f": >{RIG}/hostile-{way}/{way.rstrip('+')}/planted"]
        if attack.control == "nobody":
            return [*self.become(OTHER), *direct]
        return direct

    # --- one attack in one place -----------------------------------------------------------------------------------------

    def go(self, name, make, owner=0, environment=None):
        """All its ways, each with everything as it was before."""
        attack, whole = ATTACKS[name], Result()
        ways = attack.ways if attack.gift != "cwd" else ["/proc/self/fd/40", "/proc/self/fd/40/..", f"{RIG}/ws/out", f"{RIG}/host"]
        for way in ways:
            self.rig.fresh(owner)
            if attack.gift == "cwd":
                os.symlink("/proc/1/cwd", RIG / "ws/out")
            one = self.once(attack, way, make(name, way), environment)
            prefix = f"{way}: " if attack.gift in ("cwd", "hostile") else ""
            whole.tries.update({prefix + key: value for key, value in one.tries.items()})
            whole.details.update({prefix + key: value for key, value in one.details.items()})
            whole.songs += [song for song in one.songs if song not in whole.songs]
            whole.refused, whole.absent = one.refused or whole.refused, one.absent or whole.absent
        return whole

    def once(self, attack, way, command, environment):
        rig, result = self.rig, Result()
        environment = {"PATH": os.environ["PATH"], "VICTIM": str(rig.victim), **(environment or {})}
        passed, gifts, before_start = (), [], None
        if attack.gift in ("descriptors", "cwd"):
            directory = os.open(RIG / "host", os.O_PATH | os.O_DIRECTORY)
            readable = os.open(RIG / "host", os.O_RDONLY | os.O_DIRECTORY)
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            for number, descriptor in [(40, directory), (41, readable), (42, theirs.fileno())]:
                os.dup2(descriptor, number)
            passed, gifts = (40, 41, 42), [directory, readable, 40, 41, 42]
        master = None
        if attack.gift == "terminal":
            master, slave = pty.openpty()
            os.set_blocking(master, False)
            gifts.append(slave)
            before_start = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        rig.snapshot()
        started = time.monotonic()
        cwd = str(RIG / "ws")
        if attack.gift == "cwd" and "CONTROL" in environment:
            cwd = way
        try:
            process = subprocess.Popen(command, cwd=cwd, env=environment, stdin=slave if master else subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=passed, start_new_session=True, preexec_fn=before_start)
        except OSError as error:
            result.refused = str(error)
            return result
        try:
            output, errors = process.communicate(timeout=attack.deadline)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            rig.left_behind()
            output, errors = process.communicate()
            result.songs.append(f"not over after {attack.deadline:g} s")
        result.took = time.monotonic() - started
        self.read(output, process.returncode, errors, result)
        if attack.gift == "descriptors":
            try:
                if ours.recv(100):
                    result.songs.append("a socket of the caller's was written to")
            except (BlockingIOError, ConnectionError):
                pass
        if master:
            try:
                if os.read(master, 100):
                    result.songs.append("the caller's terminal was typed into")
            except OSError:
                pass
            os.close(master)
        if attack.gift == "printing" and len(output) > 2 << 20:
            result.songs.append(f"{len(output) >> 20} MiB were passed on")
        for descriptor in gifts:
            os.close(descriptor)
        if passed:
            ours.close()
            theirs.close()
        result.songs += rig.touched(output)
        return result

    def read(self, output, code, errors, result):
        text = output[:1 << 20].decode(errors="replace")
        for line in text.splitlines():
            if line.startswith("try\t"):
                _, name, outcome, detail = (line.split("\t") + ["", "", ""])[:4]
                result.tries[name], result.details[name] = outcome, detail
        if not result.tries and "done\t" not in text:
            said = [line for line in errors.decode(errors="replace").splitlines() if not line.startswith("  hint:")]
            result.refused = (said or [f"ended with {code}"])[-1][:300]

    # --- everything ------------------------------------------------------------------------------------------------------

    def all(self):
        names = list(self.attacks)
        began = time.monotonic()
        controls = {name: self.go(name, self.control_command, environment={"CONTROL": "1"}) for name in names}
        unproven = [name for name in names if not controls[name].open]
        self.progress("without a sandbox", began)
        places = self.places()
        results, dropped = {}, {}

        def keep():  # as it goes: a run that is ended loses only what it has not done
            if self.options.save:
                self.save(names, controls, places, results, dropped)

        for place, (kind, owner, make, program) in places.items():
            began = time.monotonic()
            results[place] = {}
            for name in names:
                if ATTACKS[name].only and kind not in ATTACKS[name].only:
                    continue
                results[place][name] = self.go(name, make, owner)
            self.progress(place, began)
            keep()
        if not self.options.skip_ablation:
            self.ablation(names, dropped, keep)
        return self.report(names, controls, unproven, places, results, dropped)

    def progress(self, what, began):
        print(f"tests/attack: {what}: {time.monotonic() - began:.0f} s", flush=True)

    def places(self):
        """Name: kind, who owns the files, how it is started, and what has to be installed for it."""
        places = {
            "run, root": ("run", 0, self.run_command, STOCKADE),
            "run, other": ("run", OTHER, lambda name, way: self.run_command(name, way, caller=OTHER), STOCKADE),
            "oci": ("oci", 0, lambda name, way: self.oci_command(name, way, OCI), OCI),
            "oci, userns": ("oci-userns", 100_000, lambda name, way: self.oci_command(name, way, OCI, True), OCI),
            "runc": ("runc", 0, lambda name, way: self.oci_command(name, way, "runc"), "runc"),
        }
        if self.options.long:
            places["runc, userns"] = ("runc", 100_000, lambda name, way: self.oci_command(name, way, "runc", True), "runc")
            places["crun"] = ("crun", 0, lambda name, way: self.oci_command(name, way, "crun"), "crun")
            places["bwrap"] = ("bwrap", OTHER, lambda name, way: [*self.become(OTHER), *self.bwrap_command(name, way)], "bwrap")
        return {place: row for place, row in places.items() if shutil.which(str(row[3]))}

    def ablation(self, names, dropped, keep):
        if not ABLATE.exists():
            print(f"tests/attack: {ABLATE.name} is not built: cargo build --features ablate --bin {ABLATE.name}")
            return
        callers = [0, OTHER] if self.options.long else [0]
        for caller in callers:
            began = time.monotonic()
            for layer in LAYERS:
                if caller and layer in ("user", "ids"):
                    continue  # takes root
                for name in names:
                    attack = ATTACKS[name]
                    if attack.only and "run" not in attack.only:
                        continue
                    if attack.layers and layer not in attack.layers or not attack.layers and layer in ("budget", "rlimits", "scratch"):
                        continue
                    make = lambda name, way: self.run_command(name, way, ABLATE, [f"STOCKADE_ABLATE={layer}"], caller)
                    result = self.go(name, make, caller)
                    before = dropped.setdefault(name, {}).get(layer)
                    if before is None or result.open and not before.open:
                        dropped[name][layer] = result
                keep()
            self.progress(f"with one protection less, {'other' if caller else 'root'}", began)

    def report(self, names, controls, unproven, places, results, dropped):
        width = max(len(place) for place in places)
        print()
        print(f"{'':10} {'outside':9}" + "".join(f" {place:>{max(len(place), 8)}}" for place in places))
        reference = results.get("runc", {})
        escapes, known = [], set()
        for name in names:
            control = controls[name]
            cells = [f"{name:10} {'works' if control.open else 'UNPROVEN':9}"]
            for place, (kind, *_rest) in places.items():
                result = results[place].get(name)
                cell = self.cell(name, kind, result, reference.get(name))
                if cell == "ESCAPE":
                    escapes.append((name, place, result))
                elif cell == "known":
                    known.add(name)
                cells.append(f" {cell:>{max(len(place), 8)}}")
            print("".join(cells) + f"  {ATTACKS[name].title}")
        alone = {name: {layer: result.summary() for layer, result in layers.items() if result.open} for name, layers in dropped.items() if name not in known}
        print("\nstopped by one protection alone:" if any(alone.values()) else "")
        for name in names:
            for layer, summary in alone.get(name, {}).items():
                news = "" if name in ALONE else "NEW: "
                print(f"  {news}{name} without {LAYERS[layer]}: {'; '.join(summary[:6])}")
        news = [name for name, layers in alone.items() if layers and name not in ALONE]
        for layer in self.unstarted(dropped):
            print(f"nothing starts without {LAYERS[layer]}: what it stops is not known to be stopped twice")
        for name in unproven:
            reason = controls[name].refused or "; ".join(sorted({value for value in controls[name].tries.values()}))
            print(f"unproven here: {name}: {reason}")
        for name in sorted(known):
            print(f"known to be open, see docs/threat-model.md: {name}, with Landlock older than ABI {ATTACKS[name].open_below_landlock}")
        for name, place, result in escapes:
            print(f"ESCAPE: {name} in {place}: {'; '.join(result.summary()[:8])}")
            for way in result.got[:8]:
                print(f"    {way}: {result.details.get(way, '')[:150]}")
        if self.options.save:
            self.save(names, controls, places, results, dropped)
        own = [name for name in names if name not in unproven]
        stopped = [name for name in own if name not in known and not any(escape[0] == name for escape in escapes)]
        twice = [name for name in stopped if name in dropped and not alone.get(name)]
        by_two = len(twice) if dropped else "an unknown number"
        print(f"{len(names)} attacks tried, {len(stopped)} stopped, {by_two} by two independent layers, {len(unproven)} unproven")
        return 1 if escapes or news or set(unproven) - self.excused() else 0

    def unstarted(self, dropped):
        """Protections without which the start refuses itself."""
        ran = {layer for layers in dropped.values() for layer, result in layers.items() if result.tries}
        return [layer for layer in LAYERS if dropped and layer not in ran and any(layer in layers for layers in dropped.values())]

    def cell(self, name, kind, result, reference):
        if result is None:
            return "-"
        if not result.open:
            return "refused" if result.refused and not result.tries else "stopped"
        if kind in ("runc", "crun", "bwrap"):
            return "open"
        if kind.startswith("oci"):
            # What the configuration gives away: the same gets through with another runtime.
            plain = lambda one: {way.removesuffix(", high bits set") for way in one.summary()}
            given = reference is not None and plain(result) <= plain(reference)
            return "as asked" if given else "ESCAPE"
        return "known" if self.landlock < ATTACKS[name].open_below_landlock else "ESCAPE"

    def excused(self):
        """Attacks that cannot work outside on this kernel either."""
        is_uml = "User Mode Linux" in pathlib.Path("/proc/cpuinfo").read_text()
        return {"D26", "D25"} if is_uml or os.uname().machine != "x86_64" else {"D26"}

    def save(self, names, controls, places, results, dropped):
        flat = lambda result: {"got": result.got, "songs": result.songs, "tries": result.tries, "refused": result.refused}
        text = json.dumps({
            "kernel": os.uname().release,
            "machine": os.uname().machine,
            "degraded": self.options.degraded,
            "controls": {name: flat(result) for name, result in controls.items()},
            "places": {place: {name: flat(result) for name, result in of.items()} for place, of in results.items()},
            "dropped": {name: {layer: flat(result) for layer, result in of.items()} for name, of in dropped.items()},
        }, indent=1)
        pathlib.Path(self.options.save).write_text(text)
