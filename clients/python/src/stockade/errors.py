"""What can go wrong. Every error is an `Error`; those about a command carry its result and report."""

from __future__ import annotations

from typing import Any, Dict, Optional

from stockade.results import CommandResult, Report


class Error(Exception):
    """Base of all errors of this package."""

    def __init__(self, message: str, *, hint: Optional[str] = None, report: Optional[Report] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.report = report

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> Any:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type, args: Any, state: Dict[str, Any]) -> Error:
    error: Error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidArgument(Error, ValueError):
    """An argument that means nothing."""


class NotFound(Error):
    """A file, command or session that does not exist."""


class FileNotFound(NotFound):
    """A path that does not exist in the sandbox."""


class FileError(Error):
    """A file operation that the sandbox refused; `errno` is the kernel's number, if there is one."""

    def __init__(self, message: str, errno: Optional[int] = None, hint: Optional[str] = None) -> None:
        super().__init__(message, hint=hint)
        self.errno = errno


class RateLimit(Error):
    """A call beyond `max_calls` or `calls_per_minute`."""


class SetupError(Error):
    """A sandbox or command that could not be started. `hint` says what helps, as far as that is known."""


class SandboxEnded(Error):
    """The sandbox has ended, or the connection to it."""


class ProtocolError(Error):
    """An answer that the protocol does not allow."""


class CommandError(Error):
    """A command that did not succeed."""

    def __init__(self, message: str, result: CommandResult) -> None:
        super().__init__(message, report=result.report)
        self.result = result

    @property
    def exit_code(self) -> int:
        """Its exit code."""
        return self.result.exit_code

    @property
    def stdout(self) -> str:
        """What it printed."""
        return self.result.stdout

    @property
    def stderr(self) -> str:
        """What it printed to standard error."""
        return self.result.stderr

    @property
    def error(self) -> Optional[str]:
        """Why it failed, in a sentence."""
        return self.result.error


class CommandFailed(CommandError):
    """It ended with another exit code than 0, or by a signal."""


class Timeout(CommandError):
    """It reached a limit on wall time, CPU time or time without output."""


class OutOfMemory(CommandError):
    """It was killed because its memory limit was reached."""


class Denied(CommandError):
    """It failed and the sandbox had denied it something, which `result.denials` lists as far as it was recorded."""


_TIMEOUTS = {"timeout_wall": "wall time", "timeout_cpu": "CPU time", "timeout_idle": "time without output"}


def raise_for(result: CommandResult) -> None:
    """Raises what this result stands for, unless it is a success."""
    status, record = result.status, result.report.get("error")
    if isinstance(record, dict):
        raise setup_error(result.report)
    if status == "ok":
        return
    code = f"exit code {result.exit_code}"
    last = result.stderr.strip()[-2000:]
    says = f":\n{last}" if last else ""
    if status in _TIMEOUTS:
        raise Timeout(f"the command reached its limit of {_TIMEOUTS[status]}", result)
    if status == "oom":
        raise OutOfMemory("the command reached its memory limit", result)
    if status == "seccomp_killed" or status == "net_budget" or result.denials:
        what = "; ".join(denial.text for denial in result.denials or ()) or status
        raise Denied(f"the command was denied something ({what}) and ended with {code}{says}", result)
    why = "" if status == "nonzero" else f" ({status})"
    raise CommandFailed(f"the command ended with {code}{why}{says}", result)


def setup_error(report: Report, fallback: str = "it could not be started") -> SetupError:
    """The error of a report, as an exception."""
    record = report.get("error")
    if not isinstance(record, dict):
        return SetupError(fallback, report=report)
    hint, option = record.get("hint"), record.get("option")
    parts = [record.get("step"), record.get("object"), record.get("reason")]
    message = ": ".join(str(part) for part in parts if part) + (f" (from {option})" if option else "")
    return SetupError(message, hint=hint if isinstance(hint, str) else None, report=report)
