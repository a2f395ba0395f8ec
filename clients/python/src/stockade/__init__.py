"""Sandboxes for commands and code.

`run` runs one command in a sandbox of its own. `Sandbox` is a sandbox that stays: commands, code and files in it.
"""

from stockade._options import Options
from stockade._run import run
from stockade._running import PtySize
from stockade.aio import AsyncCommandHandle, AsyncCommands, AsyncSandbox
from stockade.code import Context
from stockade.commands import CommandHandle, Commands, ProcessInfo
from stockade.errors import (
    CommandError,
    CommandFailed,
    Denied,
    Error,
    FileError,
    FileNotFound,
    InvalidArgument,
    NotFound,
    OutOfMemory,
    ProtocolError,
    RateLimit,
    SandboxEnded,
    SetupError,
    Timeout,
)
from stockade.execution import Execution, ExecutionError, Logs, Result
from stockade.files import EntryInfo, Files, FilesystemEvent, FilesystemEventType, FileType, WatchHandle
from stockade.net import NetEvent
from stockade.pool import Pool
from stockade.pty import Pty
from stockade.results import CommandResult, Denial, Report, Usage
from stockade.sandbox import Sandbox, Stats

# The names of E2B's SDK, so that programs move over by changing an import.
SandboxException = Error
CommandExitException = CommandError
TimeoutException = Timeout
NotFoundException = NotFound
FileNotFoundException = FileNotFound
InvalidArgumentException = InvalidArgument
RateLimitException = RateLimit

__all__ = [
    "AsyncCommandHandle",
    "AsyncCommands",
    "AsyncSandbox",
    "CommandError",
    "CommandExitException",
    "CommandFailed",
    "CommandHandle",
    "CommandResult",
    "Commands",
    "Context",
    "Denial",
    "Denied",
    "EntryInfo",
    "Error",
    "Execution",
    "ExecutionError",
    "FileError",
    "FileNotFound",
    "FileNotFoundException",
    "FileType",
    "Files",
    "FilesystemEvent",
    "FilesystemEventType",
    "InvalidArgument",
    "InvalidArgumentException",
    "Logs",
    "NetEvent",
    "NotFound",
    "NotFoundException",
    "Options",
    "OutOfMemory",
    "Pool",
    "ProcessInfo",
    "ProtocolError",
    "Pty",
    "PtySize",
    "RateLimit",
    "RateLimitException",
    "Report",
    "Result",
    "Sandbox",
    "SandboxEnded",
    "SandboxException",
    "SetupError",
    "Stats",
    "Timeout",
    "TimeoutException",
    "Usage",
    "WatchHandle",
    "run",
]
