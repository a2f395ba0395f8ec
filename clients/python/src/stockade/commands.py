"""`sandbox.commands`: commands in a sandbox, in the foreground and in the background."""

from __future__ import annotations

import signal as signals
import threading
import weakref
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    TypedDict,
    Union,
    overload,
)

from stockade._limits import Calls
from stockade._options import Command, Size, Time, User, command_limits, one_env, time_us, user_field, words_of
from stockade._protocol import text
from stockade._running import PtySize, Running, Stdin
from stockade._session import Session
from stockade._streams import MAX_OUTPUT, OutputHandler
from stockade.errors import InvalidArgument, NotFound, SandboxEnded, raise_for
from stockade.results import CommandResult

if TYPE_CHECKING:
    from typing_extensions import Unpack


class RunOptions(TypedDict, total=False):
    """The keywords of `commands.run`. Sizes are bytes or `"512M"`, times are seconds."""

    envs: Optional[Mapping[str, str]]
    env: Optional[Mapping[str, str]]
    cwd: Optional[str]
    user: Optional[User]
    stdin: Stdin
    on_stdout: Optional[OutputHandler]
    on_stderr: Optional[OutputHandler]
    timeout: Optional[Time]
    cpu_time: Optional[Time]
    idle_timeout: Optional[Time]
    memory: Optional[Size]
    pids: Optional[int]
    cpus: Optional[float]
    umask: Optional[int]
    max_output: Optional[int]
    explain_denials: Optional[bool]
    pty: Optional[PtySize]
    check: bool


@dataclass(frozen=True)
class ProcessInfo:
    """A command that runs."""

    command: str
    """Its id in the session."""
    pid: Optional[int]
    """Its process id on the host."""
    cmd: str
    args: List[str]


class CommandHandle:
    """A command in the background. Its output is collected whether or not it is waited for."""

    def __init__(self, running: Running, check: bool) -> None:
        self._running = running
        self._check = check
        self._started = threading.Event()
        self._over = threading.Event()
        self._result: Optional[CommandResult] = None
        self._failure: Optional[BaseException] = None
        self._then: List[Callable[[], object]] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._collect, name="stockade-command", daemon=True).start()
        self._started.wait()
        if running.command is None and self._failure is not None:
            raise self._failure

    def _collect(self) -> None:
        running = self._running
        try:
            while running.command is None and running.report is None:
                running.turn()
            self._started.set()
            self._result = running.wait()
        except BaseException as error:  # it is raised where somebody waits
            self._failure = error
            running.give_up()
        finally:
            self._started.set()
            with self._lock:
                self._over.set()
                then, self._then = self._then, []
            for call in then:
                call()

    def when_over(self, call: Callable[[], object]) -> None:
        """Calls it from a thread of this package when the command has ended, or at once if it has."""
        with self._lock:
            if not self._over.is_set():
                self._then.append(call)
                return
        call()

    @property
    def pid(self) -> int:
        """Its process id on the host."""
        return self._running.pid or 0

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return self._running.text(0)

    @property
    def stderr(self) -> str:
        """What it has printed to standard error so far."""
        return self._running.text(1)

    @property
    def exit_code(self) -> Optional[int]:
        """Its exit code; `None` while it runs."""
        return self._result.exit_code if self._result else None

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or was lost with its sandbox."""
        return self._over.is_set()

    def wait(self, timeout: Optional[Time] = None) -> CommandResult:
        """Waits for its end. Fails as `run` does. It goes on if the time is over, with the built-in `TimeoutError`."""
        if not self._over.wait(timeout):
            raise TimeoutError(f"the command still runs after {timeout} s")
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        if self._check:
            raise_for(self._result)
        return self._result

    def kill(self) -> bool:
        """Kills it with everything that it started. Whether it still ran."""
        return self._tell(self._running.kill)

    def signal(self, number: int) -> bool:
        """Sends a signal to it. Whether it still ran."""
        return self._tell(lambda: self._running.signal(number))

    def interrupt(self) -> bool:
        """Sends SIGINT, as ctrl-C does."""
        return self.signal(signals.SIGINT)

    def _tell(self, tell: Callable[[], None]) -> bool:
        if self._over.is_set():
            return False
        try:
            tell()
        except (NotFound, SandboxEnded):
            return False
        return True

    def send_stdin(self, data: Union[str, bytes]) -> None:
        """Writes to its standard input. It was started with `stdin=True`, or has a terminal."""
        self._running.write(data.encode() if isinstance(data, str) else data)

    def close_stdin(self) -> None:
        """The command reads the end of its input. A terminal gets ctrl-D."""
        self._running.end_input()

    def resize(self, size: PtySize) -> None:
        """Sets the size of its terminal."""
        self._running.resize(size)


class Commands:
    """The commands of a sandbox."""

    def __init__(self, session: Session, calls: Calls, shell: Sequence[str], explains: bool) -> None:
        self._session = session
        self._calls = calls
        self._shell = shell
        self._explains = explains
        self._handles: "weakref.WeakValueDictionary[int, CommandHandle]" = weakref.WeakValueDictionary()

    @overload
    def run(self, cmd: Command, background: Literal[False] = False, **options: "Unpack[RunOptions]") -> CommandResult: ...
    @overload
    def run(self, cmd: Command, background: Literal[True], **options: "Unpack[RunOptions]") -> CommandHandle: ...

    def run(
        self,
        cmd: Command,
        background: bool = False,
        *,
        envs: Optional[Mapping[str, str]] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[User] = None,
        stdin: Stdin = None,
        on_stdout: Optional[OutputHandler] = None,
        on_stderr: Optional[OutputHandler] = None,
        timeout: Optional[Time] = None,
        cpu_time: Optional[Time] = None,
        idle_timeout: Optional[Time] = None,
        memory: Optional[Size] = None,
        pids: Optional[int] = None,
        cpus: Optional[float] = None,
        umask: Optional[int] = None,
        max_output: Optional[int] = MAX_OUTPUT,
        explain_denials: Optional[bool] = None,
        pty: Optional[PtySize] = None,
        check: bool = True,
    ) -> Union[CommandResult, CommandHandle]:
        """Runs a command: a string is a line for the shell, a list is its words.

        Without `background` it waits for the end, and raises what `stockade.errors` has unless the command succeeded or `check`
        is false. The first `max_output` bytes of each stream are kept. With `background` there is a handle at once. With `pty`
        it has a terminal of its own, whose output is `stdout`. `user` is a number, `"UID:GID"` or a name, of a user that the
        sandbox maps.
        """
        self._calls.take()
        fields: Dict[str, Any] = {"argv": [text(word) for word in words_of(cmd, self._shell)]}
        added = one_env({"envs": envs, "env": env})
        if added:
            fields["add_env"] = [text(f"{name}={value}") for name, value in added.items()]
        given = {
            "cwd": None if cwd is None else text(cwd),
            "user": user_field(user),
            "timeout_us": time_us(timeout, "timeout"),
            "cpu_us": time_us(cpu_time, "cpu_time"),
            "idle_us": time_us(idle_timeout, "idle_timeout"),
            **command_limits(memory, pids, cpus),
            "umask": umask,
            "explain_denials": explain_denials if explain_denials is not None else (self._explains or None),
        }
        fields.update((name, value) for name, value in given.items() if value is not None)
        if stdin is True and not background:
            raise InvalidArgument("stdin=True is for background=True: nobody else could write to it")
        running = Running(self._session, fields, stdin, on_stdout, on_stderr, max_output, waits=not background, tty=pty)
        if background:
            handle = CommandHandle(running, check)
            self._handles[handle.pid] = handle
            return handle
        result = running.wait()
        if check:
            raise_for(result)
        return result

    def list(self) -> List[ProcessInfo]:
        """The commands that run."""
        status = self._session.ask("status").get("status")
        running = status.get("running") if isinstance(status, dict) else None
        found = []
        for one in running if isinstance(running, list) else []:
            argv = [str(word) for word in one.get("argv") or [""]]
            found.append(ProcessInfo(str(one.get("command")), one.get("pid"), argv[0], argv[1:]))
        return found

    def kill(self, pid: int) -> bool:
        """Kills the command with this process id. Whether there was one."""
        for one in self.list():
            if one.pid == pid:
                try:
                    self._session.ask("kill", command=one.command)
                except NotFound:
                    return False
                return True
        return False

    def send_stdin(self, pid: int, data: Union[str, bytes]) -> None:
        """Writes to the standard input of a command in the background."""
        self.connect(pid).send_stdin(data)

    def close_stdin(self, pid: int) -> None:
        """Closes the standard input of a command in the background."""
        self.connect(pid).close_stdin()

    def connect(self, pid: int) -> CommandHandle:
        """The handle of a command in the background that this object started."""
        handle = self._handles.get(pid)
        if handle is None:
            raise NotFound(f"no command in the background has the process id {pid}")
        return handle
