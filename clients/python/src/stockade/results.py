"""What is known of a command that has ended, read from its report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

from stockade.net import NetEvent

Report = Dict[str, Any]
"""A report, `stockade/report/v1`, as parsed JSON."""


@dataclass(frozen=True)
class Usage:
    """Resource usage of the whole process tree. What the host cannot measure is `None`."""

    wall_us: Optional[int] = None
    cpu_us: Optional[int] = None
    user_us: Optional[int] = None
    system_us: Optional[int] = None
    memory_bytes: Optional[int] = None
    memory_peak_bytes: Optional[int] = None
    memory_limit_bytes: Optional[int] = None
    oom_kills: Optional[int] = None
    pids: Optional[int] = None
    pids_peak: Optional[int] = None
    read_bytes: Optional[int] = None
    write_bytes: Optional[int] = None
    scratch_bytes: Optional[int] = None


@dataclass(frozen=True)
class Denial:
    """An operation that was denied, and the setting that would allow it."""

    layer: str
    op: str
    target: Optional[str]
    count: int
    errno: Optional[int]
    rule: Optional[str]
    hint: Optional[str]
    confidence: str

    @property
    def text(self) -> str:
        """In a few words."""
        return f"{self.layer}: {self.op} {self.target}" if self.target else f"{self.layer}: {self.op}"


@dataclass(frozen=True)
class CommandResult:
    """How a command ended."""

    stdout: str
    stderr: str
    exit_code: int
    status: str
    """`ok`, `nonzero`, `signaled`, `timeout_wall`, `oom`, …: see the report's schema."""
    error: Optional[str] = None
    """Why it failed, in a sentence; `None` if it succeeded."""
    stdout_truncated: bool = False
    """Whether more was printed than `max_output` bytes; `stdout` then has the first ones."""
    stderr_truncated: bool = False
    usage: Usage = field(default_factory=Usage)
    denials: Optional[List[Denial]] = None
    """What the sandbox denied it; `None` if that was not recorded (`explain_denials`)."""
    report: Report = field(default_factory=dict, repr=False)
    net_log: Optional[List[NetEvent]] = None
    """With `stockade.run(allow_net=…)`: its connections, and what was refused."""


def _number(table: Any, key: str) -> Optional[int]:
    value = table.get(key) if isinstance(table, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(table: Dict[str, Any], key: str) -> Optional[str]:
    value = table.get(key)
    return value if isinstance(value, str) else None


def usage_of(table: Any) -> Usage:
    """Reads a `Usage` object of a report."""
    if not isinstance(table, dict):
        return Usage()
    cpu, memory, pids, io = (table.get(key) for key in ("cpu", "memory", "pids", "io"))
    return Usage(
        wall_us=_number(table, "wall_us"),
        cpu_us=_number(cpu, "total_us"),
        user_us=_number(cpu, "user_us"),
        system_us=_number(cpu, "system_us"),
        memory_bytes=_number(memory, "current_bytes"),
        memory_peak_bytes=_number(memory, "peak_bytes"),
        memory_limit_bytes=_number(memory, "limit_bytes"),
        oom_kills=_number(memory, "oom_kills"),
        pids=_number(pids, "current"),
        pids_peak=_number(pids, "peak"),
        read_bytes=_number(io, "read_bytes"),
        write_bytes=_number(io, "write_bytes"),
        scratch_bytes=_number(table.get("disk"), "scratch_used_bytes"),
    )


def denials_of(report: Report) -> Optional[List[Denial]]:
    """Reads the denials of a report."""
    listed = report.get("denials")
    if not isinstance(listed, list):
        return None
    return [
        Denial(
            layer=_text(one, "layer") or "",
            op=_text(one, "op") or "",
            target=_text(one, "target"),
            count=_number(one, "count") or 0,
            errno=_number(one, "errno"),
            rule=_text(one, "rule"),
            hint=_text(one, "hint"),
            confidence=_text(one, "confidence") or "",
        )
        for one in listed
        if isinstance(one, dict)
    ]


def result_of(report: Report, stdout: str, stderr: str, cut: "tuple[bool, ...]" = ()) -> CommandResult:
    """A result from a report and the collected output."""
    status, code = _text(report, "status") or "unknown", _number(report, "exit_code")
    record, reason = report.get("error"), None
    if isinstance(record, dict):
        reason = f"{record.get('object')}: {record.get('reason')}"
    elif status != "ok":
        reason = f"exit code {code}" if status == "nonzero" else f"{status}, exit code {code}"
    return CommandResult(
        stdout=stdout,
        stderr=stderr,
        exit_code=125 if code is None else code,
        status=status,
        error=reason,
        stdout_truncated=any(cut[:1]),
        stderr_truncated=any(cut[1:]),
        usage=usage_of(report.get("usage")),
        denials=denials_of(report),
        report=report,
    )
