"""A process sandbox: one program with resource limits and a deadline, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional

import stockade


@dataclass(frozen=True)
class Limits:
    """Limits of one program: those of rlimits hold for each process, the others for all of them."""

    wall_s: float = 5.0
    cpu_s: float = 2.0
    open_files: int = 64
    file_bytes: int = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """How it ended."""

    status: str
    exit_code: int
    output: str
    cpu_us: Optional[int]


def judge(program: List[str], stdin: str = "", limits: Limits = Limits()) -> Verdict:
    """Runs a program that nobody trusts."""
    result = stockade.run(
        program,
        stdin=stdin,
        timeout=limits.wall_s,
        cpu_time=limits.cpu_s,
        ulimits={"nofile": limits.open_files, "fsize": limits.file_bytes},
        network="none",
        max_output=64 << 10,
        check=False,
    )
    return Verdict(result.status, result.exit_code, result.stdout + result.stderr, result.usage.cpu_us)


def main() -> None:
    python = ["python3", "-c"]
    for what, program in {
        "a sum": [*python, "print(sum(map(int, input().split())))"],
        "an endless loop": [*python, "while True: pass"],
        "a large file": [*python, "open('/tmp/x', 'w').write('x' * (2 << 20))"],
        "many files": [*python, "f = [open('/dev/null') for _ in range(100)]"],
    }.items():
        verdict = judge(program, stdin="1 2 3")
        last = (verdict.output.strip().splitlines() or [""])[-1]
        print(f"{what:<16} {verdict.status:<12} {last}")


if __name__ == "__main__":
    main()
