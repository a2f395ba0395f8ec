"""`AsyncSandbox`: the same for asyncio. Whatever waits does so in a thread of its own, never in the event loop.

A task that is cancelled kills its command and interrupts its code.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Type,
    TypeVar,
    Union,
    overload,
)

from stockade._options import Command, Options, Size, Time
from stockade.code import Context
from stockade.commands import CommandHandle, Commands, ProcessInfo, RunOptions
from stockade.errors import Error
from stockade.execution import Execution
from stockade.files import MAX_SIZE, Data, EntryInfo, Files, Path, WatchHandle
from stockade.net import NetEvent
from stockade.pool import Pool
from stockade.results import CommandResult, Report
from stockade.sandbox import Sandbox, Stats

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
_tasks: "set[asyncio.Future[Any]]" = set()
"""Handlers that are coroutines and still run: a loop itself refers to them only weakly."""


async def in_thread(work: Callable[[], T], cancel: Optional[Callable[[], object]] = None) -> T:
    """Does it in a thread, which does not keep the interpreter from ending."""
    loop = asyncio.get_running_loop()
    future: "asyncio.Future[T]" = loop.create_future()

    def settle(result: Optional[T], error: Optional[BaseException]) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def act() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # it is raised where it is awaited
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop may be closed
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=act, name="stockade-async", daemon=True).start()
    try:
        return await future
    except asyncio.CancelledError:
        if cancel is not None:
            stop = cancel
            threading.Thread(target=lambda: _quietly(stop), daemon=True).start()
        raise


def _quietly(call: Callable[[], object]) -> None:
    with contextlib.suppress(Error, OSError):
        call()


def _in_loop(handlers: Dict[str, Any]) -> Dict[str, Any]:
    """Handlers that are called in the event loop; they may be coroutines."""
    loop = asyncio.get_running_loop()

    def wrapped(handler: Callable[[Any], Any]) -> Callable[[Any], object]:
        def begin(value: Any) -> None:
            began = handler(value)
            if inspect.isawaitable(began):
                task = asyncio.ensure_future(began)
                _tasks.add(task)
                task.add_done_callback(_tasks.discard)

        return lambda value: loop.call_soon_threadsafe(begin, value)

    return {name: wrapped(value) if name.startswith("on_") and value is not None else value for name, value in handlers.items()}


class AsyncCommandHandle:
    """A command in the background."""

    def __init__(self, handle: CommandHandle) -> None:
        self._handle = handle

    @property
    def pid(self) -> int:
        """Its process id on the host."""
        return self._handle.pid

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return self._handle.stdout

    @property
    def stderr(self) -> str:
        """What it has printed to standard error so far."""
        return self._handle.stderr

    @property
    def exit_code(self) -> Optional[int]:
        """Its exit code; `None` while it runs."""
        return self._handle.exit_code

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or was lost with its sandbox."""
        return self._handle.is_over

    async def wait(self) -> CommandResult:
        """Waits for its end. Fails as `run` does. It goes on if this is cancelled."""
        over, loop = asyncio.Event(), asyncio.get_running_loop()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(over.set)

        self._handle.when_over(tell)
        await over.wait()
        return self._handle.wait()

    async def kill(self) -> bool:
        """Kills it with everything that it started."""
        return await in_thread(self._handle.kill)

    async def signal(self, number: int) -> bool:
        """Sends a signal to it."""
        return await in_thread(lambda: self._handle.signal(number))

    async def interrupt(self) -> bool:
        """Sends SIGINT, as ctrl-C does."""
        return await in_thread(self._handle.interrupt)

    async def send_stdin(self, data: Union[str, bytes]) -> None:
        """Writes to its standard input."""
        await in_thread(lambda: self._handle.send_stdin(data))

    async def close_stdin(self) -> None:
        """The command reads the end of its input."""
        self._handle.close_stdin()


class AsyncCommands:
    """The commands of a sandbox."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    @overload
    async def run(self, cmd: Command, background: Literal[False] = False, **options: "Unpack[RunOptions]") -> CommandResult: ...
    @overload
    async def run(self, cmd: Command, background: Literal[True], **options: "Unpack[RunOptions]") -> AsyncCommandHandle: ...

    async def run(self, cmd: Command, background: bool = False, **options: Any) -> Union[CommandResult, AsyncCommandHandle]:
        """As `Commands.run`. A cancelled call kills the command."""
        options = _in_loop(options)
        begun: List[CommandHandle] = []

        def begin() -> CommandHandle:
            begun.append(self._commands.run(cmd, background=True, **options))
            return begun[0]

        handle = AsyncCommandHandle(await in_thread(begin, lambda: [one.kill() for one in begun]))
        if background:
            return handle
        try:
            return await handle.wait()
        except asyncio.CancelledError:
            threading.Thread(target=lambda: _quietly(handle._handle.kill), daemon=True).start()
            raise

    async def list(self) -> List[ProcessInfo]:
        """The commands that run."""
        return await in_thread(self._commands.list)

    async def kill(self, pid: int) -> bool:
        """Kills the command with this process id."""
        return await in_thread(lambda: self._commands.kill(pid))

    async def send_stdin(self, pid: int, data: Union[str, bytes]) -> None:
        """Writes to the standard input of a command in the background."""
        await in_thread(lambda: self._commands.send_stdin(pid, data))

    async def close_stdin(self, pid: int) -> None:
        """Closes the standard input of a command in the background."""
        self._commands.close_stdin(pid)


class AsyncFiles:
    """The files of a sandbox."""

    def __init__(self, files: Files) -> None:
        self._files = files

    @overload
    async def read(self, path: Path, format: Literal["text"] = "text", *, max_size: Optional[Size] = MAX_SIZE) -> str: ...
    @overload
    async def read(self, path: Path, format: Literal["bytes"], *, max_size: Optional[Size] = MAX_SIZE) -> bytes: ...

    async def read(self, path: Path, format: Any = "text", *, max_size: Optional[Size] = MAX_SIZE) -> Any:
        """What a file contains."""
        return await in_thread(lambda: self._files.read(path, format, max_size=max_size))

    async def write(self, path: Path, data: Data, *, mode: Optional[int] = None) -> EntryInfo:
        """Writes a file, which is made if it does not exist."""
        return await in_thread(lambda: self._files.write(path, data, mode=mode))

    async def write_files(self, files: Iterable[Mapping[str, Any]]) -> List[EntryInfo]:
        """Writes files that are given as `{"path": …, "data": …}`."""
        return await in_thread(lambda: self._files.write_files(files))

    async def get_info(self, path: Path) -> EntryInfo:
        """What a path stands for."""
        return await in_thread(lambda: self._files.get_info(path))

    async def exists(self, path: Path) -> bool:
        """Whether there is something at a path."""
        return await in_thread(lambda: self._files.exists(path))

    async def list(self, path: Path, depth: Optional[int] = 1) -> List[EntryInfo]:
        """The entries of a directory."""
        return await in_thread(lambda: self._files.list(path, depth))

    async def make_dir(self, path: Path, *, mode: Optional[int] = None) -> bool:
        """Makes a directory. Whether it did not exist before."""
        return await in_thread(lambda: self._files.make_dir(path, mode=mode))

    async def rename(self, old_path: Path, new_path: Path) -> EntryInfo:
        """Renames something."""
        return await in_thread(lambda: self._files.rename(old_path, new_path))

    async def remove(self, path: Path) -> None:
        """Removes a file, or a directory with everything in it."""
        await in_thread(lambda: self._files.remove(path))

    async def watch_dir(self, path: Path, recursive: bool = False) -> WatchHandle:
        """Watches a directory. The handle's `get_new_events` waits for the sandbox, so call it in a thread."""
        return await in_thread(lambda: self._files.watch_dir(path, recursive))


class AsyncSandbox:
    """A sandbox: `await AsyncSandbox.create(…)`. The keywords are those of `Sandbox`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.commands = AsyncCommands(sandbox.commands)
        self.files = AsyncFiles(sandbox.files)

    @classmethod
    async def create(
        cls,
        *,
        timeout: Optional[Time] = None,
        idle_stop: Optional[Time] = None,
        name: Optional[str] = None,
        shell: Sequence[str] = ("/bin/sh", "-c"),
        interpreters: Optional[Mapping[str, Sequence[str]]] = None,
        max_calls: Optional[int] = None,
        calls_per_minute: Optional[int] = None,
        **options: "Unpack[Options]",
    ) -> "AsyncSandbox":
        """A new sandbox."""

        def make() -> Sandbox:
            return Sandbox(
                timeout=timeout,
                idle_stop=idle_stop,
                name=name,
                shell=shell,
                interpreters=interpreters,
                max_calls=max_calls,
                calls_per_minute=calls_per_minute,
                **options,
            )

        # If this is cancelled meanwhile, nobody refers to the sandbox, and the collector ends it.
        return cls(await in_thread(make))

    @classmethod
    async def connect(cls, sandbox_id: str) -> "AsyncSandbox":
        """A session that another program of this user made."""
        return cls(await in_thread(lambda: Sandbox.connect(sandbox_id)))

    @classmethod
    async def of(cls, pool: Pool, timeout: Optional[Time] = None) -> "AsyncSandbox":
        """A sandbox of a pool."""
        return cls(await in_thread(lambda: pool.acquire(timeout)))

    @property
    def sandbox_id(self) -> str:
        """The name of its session."""
        return self._sandbox.sandbox_id

    @property
    def report(self) -> Optional[Report]:
        """After `kill`: the report of the whole sandbox."""
        return self._sandbox.report

    async def run_code(
        self, code: str, language: Optional[str] = None, context: Optional[Context] = None, **options: Any
    ) -> Execution:
        """As `Sandbox.run_code`. A cancelled call interrupts the code."""
        sandbox, options = self._sandbox, _in_loop(options)

        def cancel() -> None:
            (context or sandbox._code.default(language or "python"))._interpreter.cancel()

        return await in_thread(lambda: sandbox.run_code(code, language, context, **options), cancel)

    async def create_code_context(
        self,
        cwd: Optional[str] = None,
        language: str = "python",
        envs: Optional[Mapping[str, str]] = None,
        memory: Optional[Size] = None,
        cpus: Optional[float] = None,
        pids: Optional[int] = None,
    ) -> Context:
        """An interpreter with variables and limits of its own."""
        return self._sandbox.create_code_context(cwd, language, envs, memory, cpus, pids)

    async def list_code_contexts(self) -> List[Context]:
        """The interpreters of this sandbox."""
        return self._sandbox.list_code_contexts()

    async def remove_code_context(self, context: Context) -> None:
        """Ends an interpreter."""
        await in_thread(lambda: self._sandbox.remove_code_context(context))

    async def interrupt(self, language: str = "python") -> None:
        """Interrupts the code that another task runs."""
        await in_thread(lambda: self._sandbox.interrupt(language))

    async def is_running(self) -> bool:
        """Whether it answers."""
        return await in_thread(self._sandbox.is_running)

    async def stats(self) -> Stats:
        """Usage of the whole sandbox, and its commands."""
        return await in_thread(self._sandbox.stats)

    async def plan(self) -> Dict[str, Any]:
        """What it may do."""
        return await in_thread(self._sandbox.plan)

    async def allow_net(self, rule: str) -> None:
        """Lets it reach a host from now on."""
        await in_thread(lambda: self._sandbox.allow_net(rule))

    async def deny_net(self, rule: str) -> None:
        """Denies a host from now on, and ends its connections."""
        await in_thread(lambda: self._sandbox.deny_net(rule))

    async def net_log(self) -> List[NetEvent]:
        """The last thousand connections and refusals."""
        return await in_thread(self._sandbox.net_log)

    async def pause(self) -> None:
        """Stops all of its processes. Needs cgroup v2."""
        await in_thread(self._sandbox.pause)

    async def resume(self) -> None:
        """Lets them continue."""
        await in_thread(self._sandbox.resume)

    async def kill(self, grace: float = 0.0) -> bool:
        """Ends it."""
        return await in_thread(lambda: self._sandbox.kill(grace))

    async def __aenter__(self) -> "AsyncSandbox":
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        await self.kill()

    def __repr__(self) -> str:
        return repr(self._sandbox).replace("Sandbox", "AsyncSandbox", 1)
