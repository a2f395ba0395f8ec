#!/usr/bin/env python3
"""The Python library against its bounds: PYTHONPATH=clients/python/src STOCKADE_PROGRAM=… python3 benches/python/main.py

What is compared runs in turns, so that a busy machine slows both. The exit status is 1 if a bound is missed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import Callable, List, Tuple

import stockade

ROUNDS = int(os.environ.get("ROUNDS", "300"))


def turns(*works: Callable[[], object]) -> List[float]:
    """The median time of each, in milliseconds."""
    taken: List[List[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for work, times in zip(works, taken):
            begun = time.perf_counter()
            work()
            times.append((time.perf_counter() - begun) * 1000)
    return [statistics.median(times) for times in taken]


def echo() -> Tuple[subprocess.Popen[bytes], Callable[[], object]]:
    """A Python outside that answers a line with a line: the round trip that run_code cannot be faster than."""
    script = "import os\nwhile os.read(0, 100): os.write(1, b'x')"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdin and child.stdout
    into, out = child.stdin.fileno(), child.stdout.fileno()
    return child, lambda: (os.write(into, b"1"), os.read(out, 1))


def resident_kib(pid: int) -> int:
    """Memory of a process and its descendants that no other process shares."""
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        try:
            with open(f"/proc/{one}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Private_"))
            with open(f"/proc/{one}/task/{one}/children") as file:
                waiting += map(int, file.read().split())
        except OSError:
            continue
    return total


def main() -> int:
    missed = 0

    def row(what: str, value: float, bound: float, unit: str) -> None:
        nonlocal missed
        good = value >= bound if unit == "per second" else value <= bound
        missed += not good
        print(f"{what:<62} {value:9.3f} {unit:<11} bound {bound:g} {'' if good else 'MISSED'}")

    with stockade.Sandbox() as sb:
        sb.run_code("1")
        command, plain = turns(
            lambda: sb.commands.run(["true"]), lambda: subprocess.run(["true"], capture_output=True, check=False)
        )
        print(f"commands.run(['true']) {command:.3f} ms, subprocess.run(['true']) {plain:.3f} ms")
        row("commands.run over subprocess.run", command / plain, 1.0, "times")
        begun = time.perf_counter()
        for _ in range(ROUNDS):
            sb.commands.run(["true"])
        row("commands from one thread", ROUNDS / (time.perf_counter() - begun), 500, "per second")
        child, trip = echo()
        code, trip_ms = turns(lambda: sb.run_code("1"), trip)
        child.kill()
        child.wait()
        row("run_code('1') over a pipe's round trip", code - trip_ms, 0.3, "ms")
    setup = "import numpy" if has_numpy() else "import json"
    with stockade.Pool(size=4, setup=setup) as pool:
        times = []
        for _ in range(8):
            while pool.ready() < 4:
                time.sleep(0.05)
            begun = time.perf_counter()
            with pool.acquire() as sandbox:
                sandbox.run_code("1")
                times.append((time.perf_counter() - begun) * 1000)
        row(f"Pool: acquire and first code ({setup})", statistics.median(times), 3.0, "ms")
        while pool.ready() < 4:
            time.sleep(0.05)
        pid = pool._shelf.waiting[0]._status()["pid"]
        print(f"memory of an idle pooled sandbox ({setup}): {resident_kib(int(pid))} KiB of its own")
    return 1 if missed else 0


def has_numpy() -> bool:
    with stockade.Sandbox() as sandbox:
        return sandbox.run_code("import numpy").error is None


if __name__ == "__main__":
    sys.exit(main())
