"""Runs the attacks in every kind of sandbox and prints which layer stopped each."""

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

from attacks import ALONE, ATTACKS, CHECKS, DEADLINE, LAYERS, OCI_ALONE, OCI_LAYERS
from rig import RIG, Rig
from sandboxes import ABLATE, ATTACK, BUILT, MAPPED, OCI, OCI_ABLATE, OTHER, STOCKADE, Sandboxes, become

# Outside: through a descriptor of the caller, a descriptor of a runtime, a link, and directly.
WORKING_DIRECTORIES = ["/proc/self/fd/40", "/proc/self/fd/40/..", *[f"/proc/self/fd/{number}{'/..' * 12}" for number in range(3, 13)], f"{RIG}/ws/out", f"{RIG}/host"]


@dataclass
class Result:
    """The outcome of an attack in one place."""
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
        """The ways that succeeded, and the canaries that fired."""
        return sorted(self.got) + self.songs


def run(base, options):
    battery = Battery(base, options)
    try:
        return battery.all()
    finally:
        battery.rig.stop_victim()
        for left in [*pathlib.Path("/sys/fs/cgroup").glob(f"*/attack{os.getpid()}-*"), *pathlib.Path("/sys/fs/cgroup").glob(f"attack{os.getpid()}-*")]:
            left.rmdir()


# The descriptors that an attack may be given. Nothing else ever has these numbers.
GIVEN = (40, 41, 42)


def release():
    null = os.open("/dev/null", os.O_RDONLY)
    for number in GIVEN:
        os.dup2(null, number)
    if null not in GIVEN:
        os.close(null)


class Battery:
    def __init__(self, base, options):
        self.options, self.base = options, base
        release()
        self.rig = Rig(base, BUILT / "examples/attack")
        self.rig.start_victim(0)
        wanted = options.only.split(",") if options.only else list(ATTACKS)
        self.attacks = {name: ATTACKS[name] for name in wanted}
        self.sandboxes = Sandboxes(self.rig, options.degraded)

    # --- one attack in one place --------------------------------------------------------------------------------------

    def go(self, name, make, owner=0, environment=None):
        """Tries all its ways, each from the same state."""
        attack, whole = ATTACKS[name], Result()
        ways = attack.ways if attack.gift != "cwd" else WORKING_DIRECTORIES
        for way in ways:
            self.rig.fresh(owner)
            if attack.gift == "cwd":
                os.symlink("/proc/1/cwd", RIG / "ws/out")
            one = self.once(attack, way, make(name, way), environment, OTHER if owner == OTHER else 0)
            prefix = f"{way}: " if attack.gift in ("cwd", "hostile", "program") else ""
            whole.tries.update({prefix + key: value for key, value in one.tries.items()})
            whole.details.update({prefix + key: value for key, value in one.details.items()})
            whole.songs += [song for song in one.songs if song not in whole.songs]
            whole.refused, whole.absent = one.refused or whole.refused, one.absent or whole.absent
        return whole

    def once(self, attack, way, command, environment, caller):
        rig, result = self.rig, Result()
        environment = {"PATH": os.environ["PATH"], "VICTIM": str(rig.victim), **(environment or {})}
        deadline = attack.deadline
        if "CONTROL" not in environment or attack.absent is not DEADLINE:  # these run until they are killed
            deadline *= self.options.slow
        passed, gifts, before_start = (), [], None
        if attack.gift in ("descriptors", "cwd", "program"):
            directory = os.open(RIG / "host", os.O_PATH | os.O_DIRECTORY)
            readable = os.open(RIG / "host", os.O_RDONLY | os.O_DIRECTORY)
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            for number, descriptor in zip(GIVEN, (directory, readable, theirs.fileno())):
                os.dup2(descriptor, number)
            passed, gifts = GIVEN, [directory, readable]
        master = None
        if attack.gift == "terminal":
            master, slave = pty.openpty()
            os.set_blocking(master, False)
            gifts.append(slave)
            before_start = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        reader, writer = os.pipe() if attack.gift == "streams" else (None, subprocess.PIPE)
        if attack.gift == "neighbour" and (left := self.neighbour(way, caller)):
            result.refused = f"before the attack, too: {left}"
            return result
        rig.snapshot()
        started = time.monotonic()
        cwd = str(RIG / "ws")
        if attack.gift == "cwd" and "CONTROL" in environment:
            cwd = way
        try:
            process = subprocess.Popen(command, cwd=cwd, env=environment, stdin=slave if master else subprocess.DEVNULL,
                                       stdout=writer, stderr=subprocess.PIPE, pass_fds=passed, start_new_session=True, preexec_fn=before_start)
        except OSError as error:
            result.refused = str(error)
            return result
        if attack.gift == "neighbour":
            result.songs += self.meet(process, way, caller)
        try:
            output, errors = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            rig.left_behind()
            output, errors = process.communicate()
            result.songs.append(f"not over after {deadline:g} s")
        result.took = time.monotonic() - started
        if reader is not None:
            if not os.get_blocking(writer):
                result.songs.append("a stream of the caller's was left with O_NONBLOCK")
            os.close(writer)
            with open(reader, "rb") as stream:
                output = stream.read()
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
            release()
            ours.close()
            theirs.close()
        result.songs += rig.touched(output)
        return result

    def neighbour(self, way, caller):
        """The resources that another process of the caller can no longer get."""
        return subprocess.run([*become(caller), ATTACK, "neighbour", way], capture_output=True, text=True).stdout.strip().removesuffix("done\tneighbour").strip()

    def meet(self, process, way, caller):
        """While the workload holds all that it got, a neighbour checks what is left."""
        until = time.monotonic() + 10 * self.options.slow
        while not (RIG / "ws/taken").exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        left = self.neighbour(way, caller)
        (RIG / "ws/release").touch()
        return [f"nothing is left for the caller's other processes: {left}"] if left else []

    def read(self, output, code, errors, result):
        text = output[:1 << 20].decode(errors="replace")
        for line in text.splitlines():
            if line.startswith("try\t"):
                _, name, outcome, detail = (line.split("\t") + ["", "", ""])[:4]
                result.tries[name], result.details[name] = outcome, detail
        if not result.tries and code in (137, -signal.SIGKILL):
            result.tries["anything"] = "SIGKILL"  # a budget kills the whole tree, including the reporting process
        elif not result.tries and "done\t" not in text:
            said = [line for line in errors.decode(errors="replace").splitlines() if not line.startswith("  hint:")]
            result.refused = (said or [f"ended with {code}"])[-1][:300]

    # --- the whole battery --------------------------------------------------------------------------------------------

    def all(self):
        names = list(self.attacks)
        began = time.monotonic()
        owner = lambda name: OTHER if ATTACKS[name].control == "nobody" else 0
        controls = {name: self.go(name, self.sandboxes.control, owner(name), {"CONTROL": "1"}) for name in names}
        unproven = [name for name in names if not controls[name].open]
        self.progress("without a sandbox", began)
        places = self.places()
        results, dropped, dropped_oci = {}, {}, {}

        def keep():  # after each attack, so that an interrupted run keeps its results
            if self.options.save:
                self.save(names, controls, places, results, dropped, dropped_oci)

        for place, (kind, owner, make, *_rest) in places.items():
            began = time.monotonic()
            results[place] = {}
            for name in names:
                if kind in ATTACKS[name].absent:
                    continue
                results[place][name] = self.go(name, make, owner)
            self.progress(place, began)
            keep()
        if not self.options.skip_ablation and not self.options.under:
            self.ablation(names, dropped, keep)
            self.oci_ablation(names, dropped_oci, keep)
        return self.report(names, controls, unproven, places, results, dropped, dropped_oci)

    def progress(self, what, began):
        print(f"tests/attack: {what}: {time.monotonic() - began:.0f} s", flush=True)

    def places(self):
        """Name: kind, owner of the files, start function, required program, and origin of the configuration."""
        of, under = self.sandboxes, self.options.under
        places = {
            "run, root": ("run", 0, of.run, STOCKADE),
            "run, other": ("run", OTHER, lambda name, way: of.run(name, way, caller=OTHER), STOCKADE),
            "oci": ("oci", 0, lambda name, way: of.as_docker(name, way, OCI), OCI, "runc"),
            "oci, userns": ("oci", MAPPED, lambda name, way: of.as_docker(name, way, OCI, True), OCI, "runc"),
            "runc": ("runc", 0, lambda name, way: of.as_docker(name, way, "runc"), "runc"),
        }
        if under:
            places = {place: row for place, row in places.items() if row[0] == "run" and "run" in under}
        if "session" in under:
            places["session, root"] = ("session", 0, of.session, STOCKADE)
            places["session, other"] = ("session", OTHER, lambda name, way: of.session(name, way, OTHER), STOCKADE)
        for kind, program in {"oci": OCI, "runc": "runc", "crun": "crun"}.items():
            if kind in under:
                strictly = lambda caller, program=program: lambda name, way: of.strictly(name, way, program, caller)
                places[f"{kind}, strict"] = (kind, MAPPED + 1000, strictly(0), program)
                places[f"{kind}, strict, other"] = (kind, OTHER, strictly(OTHER), program)
                if kind != "oci":
                    places[f"{kind}, spec"] = (kind, 0, lambda name, way, program=program: of.as_specified(name, way, program), program)
        if "bwrap" in under:
            places["bwrap, root"] = ("bwrap", 0, lambda name, way: of.bwrap(name, way, 0), "bwrap")
            places["bwrap, other"] = ("bwrap", OTHER, lambda name, way: of.bwrap(name, way, OTHER), "bwrap")
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
                    continue  # needs root
                for name in names:
                    attack = ATTACKS[name]
                    if attack.layers and layer not in attack.layers or not attack.layers and layer in ("budget", "rlimits", "scratch", *CHECKS):
                        continue
                    make = lambda name, way: self.sandboxes.run(name, way, ABLATE, [f"STOCKADE_ABLATE={layer}"], caller)
                    result = self.go(name, make, caller)
                    before = dropped.setdefault(name, {}).get(layer)
                    if before is None or result.open and not before.open:
                        dropped[name][layer] = result
                keep()
            self.progress(f"with one protection less, {'other' if caller else 'root'}", began)

    def oci_ablation(self, names, dropped, keep):
        """The same for a container. The files belong to the user that its user is mapped to."""
        if not OCI_ABLATE.exists():
            print(f"tests/attack: {OCI_ABLATE.name} is not built: cargo build --features ablate --bin {OCI_ABLATE.name}")
            return
        began = time.monotonic()
        for layer in OCI_LAYERS:
            # If the ids inside equal those outside, the files are the owner's inside, too.
            owner = {"user": 1000, "ids": 0}.get(layer, MAPPED + 1000)
            for name in names:
                attack = ATTACKS[name]
                if "oci" in attack.absent or attack.layers and layer not in (*attack.layers, "pid", "devices"):
                    continue
                if not attack.layers and layer in ("budget", "rlimits"):
                    continue
                make = lambda name, way: self.sandboxes.strictly(name, way, OCI_ABLATE, 0, [f"STOCKADE_ABLATE={layer}"])
                dropped.setdefault(name, {})[layer] = self.go(name, make, owner)
            keep()
        self.progress("containers with one protection less", began)

    def report(self, names, controls, unproven, places, results, dropped, dropped_oci):
        width = max(len(place) for place in places)
        print()
        print(f"{'':10} {'outside':9}" + "".join(f" {place:>{max(len(place), 8)}}" for place in places))
        escapes, known = [], set()
        for name in names:
            control = controls[name]
            cells = [f"{name:10} {'works' if control.open else 'UNPROVEN':9}"]
            for place in places:
                result = results[place].get(name)
                cell = self.cell(name, place, places, results)
                if cell == "ESCAPE":
                    escapes.append((name, place, result))
                elif cell == "known":
                    known.add(name)
                cells.append(f" {cell:>{max(len(place), 8)}}")
            print("".join(cells) + f"  {ATTACKS[name].title}")
        alone, news = {}, []
        for kind, of, layers, accepted in [("", dropped, LAYERS, ALONE), (", in a container", dropped_oci, OCI_LAYERS, OCI_ALONE)]:
            found = {name: {layer: result.summary() for layer, result in row.items() if result.open} for name, row in of.items() if name not in known}
            print(f"\nstopped by one protection alone{kind}:" if any(found.values()) else "")
            for name in names:
                for layer, summary in found.get(name, {}).items():
                    new = "" if name in accepted else "NEW: "
                    print(f"  {new}{name} without {layers[layer]}: {'; '.join(summary[:6])}")
            news += [name for name, row in found.items() if row and name not in accepted]
            for layer in self.unstarted(of, layers):
                print(f"nothing starts without {layers[layer]}{kind}: what it stops is not known to be stopped twice")
            alone = alone or found
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
            self.save(names, controls, places, results, dropped, dropped_oci)
        if not any(kind in ("run", "oci", "session") for kind, *_rest in places.values()):
            through = [name for name in names if any(of[name].open for of in results.values() if name in of)]
            print(f"{len(names)} attacks tried, {len(through)} get through in some of these, {len(unproven)} unproven")
            return 0
        own = [name for name in names if name not in unproven]
        stopped = [name for name in own if name not in known and not any(escape[0] == name for escape in escapes)]
        twice = [name for name in stopped if name in dropped and not alone.get(name)]
        by_two = len(twice) if dropped else "an unknown number"
        print(f"{len(names)} attacks tried, {len(stopped)} stopped, {by_two} by two independent layers, {len(unproven)} unproven")
        if dropped_oci:
            twice = [name for name in stopped if name in dropped_oci and not any(result.open for result in dropped_oci[name].values())]
            print(f"in a container: {len(twice)} by two independent layers")
        return 1 if escapes or news or set(unproven) - self.excused() else 0

    def unstarted(self, dropped, known):
        """Protections without which the start fails."""
        ran = {layer for layers in dropped.values() for layer, result in layers.items() if result.tries}
        return [layer for layer in known if dropped and layer not in ran and any(layer in layers for layers in dropped.values())]

    def cell(self, name, place, places, results):
        (kind, _, _, _, *reference), result = places[place], results.get(place, {}).get(name)
        if result is None:
            return "n/a"
        if not result.open:
            return "refused" if result.refused and not result.tries else "stopped"
        if kind in ("runc", "crun", "bwrap"):
            return "open"
        if reference:
            # Permitted by the configuration: the attack succeeds with another runtime too.
            plain = lambda one: {way.removesuffix(", high bits set") for way in one.summary()}
            theirs = results.get(reference[0], {}).get(name)
            return "as asked" if theirs is not None and plain(result) <= plain(theirs) else "ESCAPE"
        return "known" if self.sandboxes.landlock < ATTACKS[name].open_below_landlock else "ESCAPE"

    def excused(self):
        """Attacks that cannot work outside on this kernel either."""
        is_uml = "User Mode Linux" in pathlib.Path("/proc/cpuinfo").read_text()
        return {"D26", "D25"} if is_uml or os.uname().machine != "x86_64" else {"D26"}

    def save(self, names, controls, places, results, dropped, dropped_oci):
        flat = lambda result: {"got": result.got, "songs": result.songs, "tries": result.tries, "refused": result.refused}
        text = json.dumps({
            "kernel": os.uname().release,
            "machine": os.uname().machine,
            "degraded": self.options.degraded,
            "landlock": self.sandboxes.landlock,
            "cells": {place: {name: self.cell(name, place, places, results) for name in names} for place in results},
            "controls": {name: flat(result) for name, result in controls.items()},
            "places": {place: {name: flat(result) for name, result in of.items()} for place, of in results.items()},
            "dropped": {name: {layer: flat(result) for layer, result in of.items()} for name, of in dropped.items()},
            "dropped_oci": {name: {layer: flat(result) for layer, result in of.items()} for name, of in dropped_oci.items()},
        }, indent=1)
        pathlib.Path(self.options.save).write_text(text)
