"""`AsyncSandbox`: the same for asyncio. Whatever waits does so in a thread of its own, never in the event loop.

A task that is cancelled kills its command and interrupts its code.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Coroutine,
    Dict,
    Generic,
    List,
    Literal,
    Optional,
    Type,
    TypeVar,
    Union,
    overload,
)

from stockade._options import Command, SandboxOptions, Size, Time
from stockade._running import PtySize
from stockade.code import CodeOptions, Context
from stockade.commands import CommandHandle, Commands, RunOptions
from stockade.errors import Error
from stockade.execution import Execution
from stockade.files import MAX_SIZE, Files, Path, WatchHandle
from stockade.pool import Pool
from stockade.pty import Pty, PtyHandler, PtyOptions
from stockade.results import CommandResult, Report
from stockade.sandbox import Sandbox

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec, Unpack

    P = ParamSpec("P")

T = TypeVar("T")
S = TypeVar("S")
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
            _behind(cancel)
        raise


def _behind(call: Callable[[], object]) -> None:
    def quietly() -> None:
        with contextlib.suppress(Error, OSError):
            call()

    threading.Thread(target=quietly, daemon=True).start()


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


class _Waits(Generic[S]):
    """What has the methods of `S`, for asyncio."""

    def __init__(self, of: S) -> None:
        self._of = of


def _waits(method: "Callable[Concatenate[S, P], T]") -> "Callable[Concatenate[_Waits[S], P], Coroutine[Any, Any, T]]":
    """The same method, which waits in a thread."""

    @functools.wraps(method)
    async def call(self: _Waits[S], /, *words: "P.args", **more: "P.kwargs") -> T:
        return await in_thread(lambda: method(self._of, *words, **more))

    return call


class AsyncCommandHandle(_Waits[CommandHandle]):
    """A command in the background."""

    @property
    def pid(self) -> int:
        """Its process id on the host."""
        return self._of.pid

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return self._of.stdout

    @property
    def stderr(self) -> str:
        """What it has printed to standard error so far."""
        return self._of.stderr

    @property
    def exit_code(self) -> Optional[int]:
        """Its exit code; `None` while it runs."""
        return self._of.exit_code

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or was lost with its sandbox."""
        return self._of.is_over

    async def wait(self) -> CommandResult:
        """Waits for its end. Fails as `run` does. It goes on if this is cancelled."""
        over, loop = asyncio.Event(), asyncio.get_running_loop()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(over.set)

        self._of.when_over(tell)
        await over.wait()
        return self._of.wait()

    kill = _waits(CommandHandle.kill)
    signal = _waits(CommandHandle.signal)
    interrupt = _waits(CommandHandle.interrupt)
    send_stdin = _waits(CommandHandle.send_stdin)
    close_stdin = _waits(CommandHandle.close_stdin)
    resize = _waits(CommandHandle.resize)


class AsyncCommands(_Waits[Commands]):
    """The commands of a sandbox."""

    @overload
    async def run(self, cmd: Command, background: Literal[False] = False, **options: "Unpack[RunOptions]") -> CommandResult: ...
    @overload
    async def run(self, cmd: Command, background: Literal[True], **options: "Unpack[RunOptions]") -> AsyncCommandHandle: ...

    async def run(self, cmd: Command, background: bool = False, **options: Any) -> Union[CommandResult, AsyncCommandHandle]:
        """As `Commands.run`. A cancelled call kills the command."""
        options = _in_loop(options)
        begun: List[CommandHandle] = []

        def begin() -> CommandHandle:
            begun.append(self._of.run(cmd, background=True, **options))
            return begun[0]

        handle = AsyncCommandHandle(await in_thread(begin, lambda: [one.kill() for one in begun]))
        if background:
            return handle
        try:
            return await handle.wait()
        except asyncio.CancelledError:
            _behind(begun[0].kill)
            raise

    async def connect(self, pid: int) -> AsyncCommandHandle:
        """The handle of a command in the background that this object started."""
        return AsyncCommandHandle(self._of.connect(pid))

    list = _waits(Commands.list)
    kill = _waits(Commands.kill)
    send_stdin = _waits(Commands.send_stdin)
    close_stdin = _waits(Commands.close_stdin)


class AsyncPty(_Waits[Pty]):
    """The terminals of a sandbox."""

    async def create(
        self, size: Optional[PtySize] = None, on_data: Optional[PtyHandler] = None, **options: "Unpack[PtyOptions]"
    ) -> AsyncCommandHandle:
        """As `Pty.create`."""
        handler = _in_loop({"on_data": on_data})["on_data"]
        return AsyncCommandHandle(await in_thread(lambda: self._of.create(size, handler, **options)))

    send_stdin = _waits(Pty.send_stdin)
    resize = _waits(Pty.resize)
    kill = _waits(Pty.kill)


class AsyncWatchHandle(_Waits[WatchHandle]):
    """Sees changes by comparing, as `WatchHandle` does."""

    get_new_events = _waits(WatchHandle.get_new_events)
    stop = _waits(WatchHandle.stop)


class AsyncFiles(_Waits[Files]):
    """The files of a sandbox."""

    @overload
    async def read(self, path: Path, format: Literal["text"] = "text", *, max_size: Optional[Size] = MAX_SIZE) -> str: ...
    @overload
    async def read(self, path: Path, format: Literal["bytes"], *, max_size: Optional[Size] = MAX_SIZE) -> bytes: ...

    async def read(self, path: Path, format: Any = "text", *, max_size: Optional[Size] = MAX_SIZE) -> Any:
        """What a file contains."""
        return await in_thread(lambda: self._of.read(path, format, max_size=max_size))

    write = _waits(Files.write)
    write_files = _waits(Files.write_files)
    get_info = _waits(Files.get_info)
    exists = _waits(Files.exists)
    list = _waits(Files.list)
    make_dir = _waits(Files.make_dir)
    rename = _waits(Files.rename)
    remove = _waits(Files.remove)

    async def watch_dir(self, path: Path, recursive: bool = False) -> AsyncWatchHandle:
        """Watches a directory: `await watch.get_new_events()` tells what has changed."""
        return AsyncWatchHandle(await in_thread(lambda: self._of.watch_dir(path, recursive)))


class AsyncSandbox(_Waits[Sandbox]):
    """A sandbox: `async with AsyncSandbox(…)`, which starts it, or `await AsyncSandbox.create(…)`. The keywords are those of
    `Sandbox`."""

    commands: AsyncCommands
    pty: AsyncPty
    files: AsyncFiles

    def __init__(self, **options: "Unpack[SandboxOptions]") -> None:
        self._options = options

    if not TYPE_CHECKING:  # which would take every name for one that exists

        def __getattr__(self, name: str) -> Any:
            if name in ("_of", "commands", "pty", "files"):
                raise AttributeError("the sandbox is not started: use `async with`, or `await AsyncSandbox.create(…)`")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @classmethod
    async def _begin(cls, make: Callable[[], Sandbox]) -> "AsyncSandbox":
        # If this is cancelled meanwhile, nobody refers to the sandbox, and the collector ends it.
        return cls()._take(await in_thread(make))

    def _take(self, sandbox: Sandbox) -> "AsyncSandbox":
        self._of = sandbox
        self.commands, self.pty, self.files = AsyncCommands(sandbox.commands), AsyncPty(sandbox.pty), AsyncFiles(sandbox.files)
        return self

    @classmethod
    async def create(cls, **options: "Unpack[SandboxOptions]") -> "AsyncSandbox":
        """A new sandbox."""
        return await cls._begin(lambda: Sandbox(**options))

    @classmethod
    async def connect(cls, sandbox_id: str) -> "AsyncSandbox":
        """A session that another program of this user made."""
        return await cls._begin(lambda: Sandbox.connect(sandbox_id))

    @classmethod
    async def of(cls, pool: Pool, timeout: Optional[Time] = None) -> "AsyncSandbox":
        """A sandbox of a pool."""
        return await cls._begin(lambda: pool.acquire(timeout))

    @property
    def sandbox_id(self) -> str:
        """The name of its session."""
        return self._of.sandbox_id

    @property
    def report(self) -> Optional[Report]:
        """After `kill`: the report of the whole sandbox."""
        return self._of.report

    async def run_code(
        self,
        code: str,
        language: Optional[str] = None,
        context: Optional[Context] = None,
        **options: "Unpack[CodeOptions]",
    ) -> Execution:
        """As `Sandbox.run_code`. A cancelled call interrupts the code."""
        sandbox, handled = self._of, _in_loop(dict(options))

        def cancel() -> None:
            (context or sandbox._code.default(language or "python"))._interpreter.cancel()

        return await in_thread(lambda: sandbox.run_code(code, language, context, **handled), cancel)

    create_code_context = _waits(Sandbox.create_code_context)
    list_code_contexts = _waits(Sandbox.list_code_contexts)
    remove_code_context = _waits(Sandbox.remove_code_context)
    interrupt = _waits(Sandbox.interrupt)
    is_running = _waits(Sandbox.is_running)
    stats = _waits(Sandbox.stats)
    plan = _waits(Sandbox.plan)
    allow_net = _waits(Sandbox.allow_net)
    deny_net = _waits(Sandbox.deny_net)
    net_log = _waits(Sandbox.net_log)
    pause = _waits(Sandbox.pause)
    resume = _waits(Sandbox.resume)
    kill = _waits(Sandbox.kill)

    async def __aenter__(self) -> "AsyncSandbox":
        return self if "_of" in self.__dict__ else self._take(await in_thread(lambda: Sandbox(**self._options)))

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        await self.kill()

    def __repr__(self) -> str:
        if "_of" not in self.__dict__:
            return "<AsyncSandbox, not started>"
        return repr(self._of).replace("Sandbox", "AsyncSandbox", 1)
