"""A session that this process owns: made by `stockade run -d`, and ended by the end of its lease at the latest."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import subprocess
import tempfile
import threading
import weakref
from typing import Any, Callable, Iterator, List, Optional, Tuple, TypeVar

from stockade._options import Options, Time, flags, time_flag
from stockade._owned import Fd, Owned
from stockade._program import program
from stockade._protocol import Connection, Reply
from stockade.errors import Error, InvalidArgument, NotFound, ProtocolError, SandboxEnded, setup_error
from stockade.results import Report

T = TypeVar("T")
MOST_COMMANDS = 100
"""Commands of one session at a time: each has a connection, of which a session serves 128."""


def homes() -> Iterator[str]:
    """Where the sessions of this user are, by docs/sessions.md."""
    uid = os.geteuid()
    if uid == 0:
        yield "/run/stockade"
        return
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        yield os.path.join(runtime, "stockade")
    yield f"/run/user/{uid}/stockade"
    yield f"/tmp/stockade-{uid}"


def socket_of(name: str) -> str:
    """The path of a session's socket."""
    if not name or "/" in name or name.startswith("."):
        raise InvalidArgument(f"{name!r} is not the name of a session")
    for home in homes():
        path = os.path.join(home, name, "socket")
        if os.path.exists(path):
            return path
    raise NotFound(f"no session {name!r} of this user runs")


class Session(Owned):
    """Connections to a session, and the lease by which this process owns it."""

    def __init__(self, name: str, lease: Optional[Fd] = None) -> None:
        super().__init__()
        self.name = name
        self.path = socket_of(name)
        self.report: Optional[Report] = None
        self._lease = lease
        self._ended = False
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._slots = threading.BoundedSemaphore(MOST_COMMANDS)
        self._idle: List[Connection] = []
        self._open: "weakref.WeakSet[Connection]" = weakref.WeakSet()
        self._control: Optional[Connection] = None
        self.null = Fd(os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC))

    def check(self) -> None:
        """Whether it can be used: it belongs to the process that made it."""
        if self.pid != os.getpid():
            raise Error("this sandbox belongs to another process", hint="make one of its own after the fork")
        if self._ended:
            raise SandboxEnded("the sandbox has ended")

    @property
    def is_open(self) -> bool:
        return not self._ended and self.pid == os.getpid()

    def is_held(self) -> bool:
        """Whether its supervisor, the only reader of the lease, lives. This asks nobody."""
        if not self.is_open or self._lease is None:
            return False
        gone = select.poll()
        gone.register(self._lease.number, 0)
        return not gone.poll(0)

    def acquire(self, wait: bool) -> Connection:
        """A connection for one command."""
        self.check()
        if not self._slots.acquire(blocking=wait):
            raise Error(f"the sandbox runs {MOST_COMMANDS} commands already")
        try:
            with self._lock:
                if self._idle:
                    return self._idle.pop()
            return self._connect()
        except BaseException:
            self._slots.release()
            raise

    def release(self, connection: Connection, reusable: bool) -> None:
        """Takes a connection back. Closing it kills the command that still uses it."""
        with self._lock:
            keep = reusable and not self._ended and len(self._idle) < 8
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()
        self._slots.release()

    def _connect(self) -> Connection:
        try:
            connection = Connection(self.path)
        except FileNotFoundError:
            raise SandboxEnded("the sandbox has ended") from None
        self._open.add(connection)
        return connection

    def ask(self, op: str, **fields: Any) -> Reply:
        """A request that no command waits behind."""
        return self._ask(lambda control: control.ask(op, **fields))

    def ask_for_fd(self, op: str, **fields: Any) -> Tuple[Reply, int]:
        """A request whose reply has a descriptor."""
        reply, fds = self._ask(lambda control: control.ask_for_fds(op, fields))
        if len(fds) != 1:
            for fd in fds:
                os.close(fd)
            raise ProtocolError(f"the session sent {len(fds)} descriptors, not one")
        return reply, fds[0]

    def _ask(self, ask: Callable[[Connection], T]) -> T:
        self.check()
        with self._asking:
            control, self._control = self._control or self._connect(), None
            try:
                answer = ask(control)
            except (SandboxEnded, ProtocolError, OSError):
                control.close()
                raise
            except Error:
                self._control = control
                raise
            except BaseException:
                control.close()  # its reply would be taken for the next one's
                raise
            self._control = control
            return answer

    def end(self, grace: float = 0.0, patience: float = 20.0) -> bool:
        """Ends it, and returns when all of its processes are dead. Whether it ran."""
        with self._lock:
            if self._ended or self.pid != os.getpid():
                return False
            self._ended = True
        ran = False
        with contextlib.suppress(Error, OSError):
            connection = self._connect()
            waiting = connection.send("wait")
            connection.send("stop", (), {"grace_us": int(grace * 1_000_000)})
            while True:
                reply, _ = connection.receive(grace + patience)
                ran = True
                if reply.get("id") == waiting:
                    report = reply.get("report")
                    self.report = report if isinstance(report, dict) else None
                    break
            connection.close()
        if ran and self._lease is not None:
            # The supervisor is the only reader of the lease, and it exits last.
            gone = select.poll()
            gone.register(self._lease.number, 0)
            gone.poll(patience * 1000)
        self._close()
        return ran

    def abandon(self) -> None:
        """Ends it without waiting. For the garbage collector."""
        if self.pid == os.getpid() and not self._ended:
            self._ended = True
            self._close()

    def _close(self) -> None:
        for connection in list(self._open):
            if connection in self._idle or connection is self._control:
                connection.close()
        self._idle.clear()
        if self._lease is not None:
            self._lease.close()

    def close_in_child(self) -> None:
        self._ended = True
        for connection in list(self._open):
            connection.close()


# Distributions tell pip to leave their packages alone. In a sandbox /usr is read-only, and pip installs below the home.
_ENV = ("--env", "PIP_BREAK_SYSTEM_PACKAGES=1")


def start(options: Options, name: Optional[str], lifetime: Optional[Time], idle_stop: Optional[Time]) -> Session:
    """Makes a session that ends with this process."""
    name = name or f"py-{secrets.token_hex(6)}"
    words = [program(), "run", "-d", "--rm", "--name", name, *_ENV, *flags(options)]
    if lifetime is not None:
        words += ["--lifetime", time_flag(lifetime, "timeout")]
    if idle_stop is not None:
        words += ["--idle-stop", time_flag(idle_stop, "idle_stop")]
    end, held = os.pipe()
    lease, place = Fd(held), tempfile.mkdtemp(prefix=".stockade-", dir=_place())
    try:
        report = os.path.join(place, "report")
        words += [f"--lease=fd:{end}", f"--report={report}"]
        made = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, pass_fds=[end])
        if made.returncode:
            raise setup_error(_read(report), made.stderr.decode("utf-8", "replace").strip())
        return Session(name, lease)
    except BaseException:
        lease.close()
        raise
    finally:
        os.close(end)
        shutil.rmtree(place, ignore_errors=True)


def _place() -> Optional[str]:
    """A directory for the report of a start, which is not one that sandboxes are often given."""
    place = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "")
    return place if os.access(place, os.W_OK | os.X_OK) else None


def _read(report: str) -> Report:
    try:
        with open(report, "rb") as file:
            read = json.load(file)
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}
