from __future__ import annotations

import asyncio
import time
from typing import Any, Awaitable, Callable, List

import pytest

import stockade
from stockade.aio import AsyncFiles, AsyncPty, AsyncWatchHandle


def in_loop(test: Callable[[stockade.AsyncSandbox], Awaitable[None]]) -> Callable[[], None]:
    """Runs a test in an event loop, with a sandbox."""

    async def with_sandbox() -> None:
        async with await stockade.AsyncSandbox.create() as sandbox:
            await asyncio.wait_for(test(sandbox), 90)

    def run() -> None:
        asyncio.run(with_sandbox())

    run.__name__ = test.__name__
    return run


@in_loop
async def test_commands_run_at_the_same_time(sb: stockade.AsyncSandbox) -> None:
    results = await asyncio.gather(*(sb.commands.run(f"sleep 0.3; echo {number}") for number in range(20)))
    assert [result.stdout for result in results] == [f"{number}\n" for number in range(20)]
    with pytest.raises(stockade.CommandFailed):
        await sb.commands.run("exit 3")
    assert (await sb.commands.run("exit 3", check=False)).exit_code == 3
    with pytest.raises(stockade.Timeout):
        await sb.commands.run("sleep 60", timeout=0.2)


@in_loop
async def test_handlers_are_called_in_the_loop(sb: stockade.AsyncSandbox) -> None:
    pieces: List[str] = []
    loop = asyncio.get_running_loop()

    async def later(piece: str) -> None:
        assert asyncio.get_running_loop() is loop
        await asyncio.sleep(0)
        pieces.append(piece)

    await sb.commands.run("echo a; sleep 0.1; echo b", on_stdout=later)
    await sb.run_code("print('c')", on_stdout=pieces.append)
    assert "".join(pieces) == "a\nb\nc\n"


@in_loop
async def test_a_cancelled_call_ends_what_it_ran(sb: stockade.AsyncSandbox) -> None:
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(sb.commands.run(["sleep", "600"]), 0.5)
    until = time.monotonic() + 10
    while await sb.commands.list():
        assert time.monotonic() < until
        await asyncio.sleep(0.02)
    await sb.run_code("kept = 5")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(sb.run_code("while True: pass"), 0.5)
    assert (await sb.run_code("kept")).text == "5"
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(sb.run_code("import signal; signal.signal(2, signal.SIG_IGN)\nwhile True: pass"), 0.5)
    lost = await sb.run_code("kept")
    assert lost.error and lost.error.name == "NameError"


@in_loop
async def test_the_background(sb: stockade.AsyncSandbox) -> None:
    handle = await sb.commands.run("read a; echo got $a; read b", background=True, stdin=True, check=False)
    await handle.send_stdin("x\n")
    while handle.stdout != "got x\n":
        await asyncio.sleep(0.02)
    assert [one.pid for one in await sb.commands.list()] == [handle.pid]
    assert await handle.kill() and (await handle.wait()).status == "killed_by_user"
    polite = await sb.commands.run(["sleep", "600"], background=True, check=False)
    assert await polite.interrupt() and (await polite.wait()).exit_code == 130


@in_loop
async def test_the_rest_is_the_same(sb: stockade.AsyncSandbox) -> None:
    context = await sb.create_code_context(language="bash")
    assert (await sb.run_code("echo $((6 * 7))", context=context)).logs.stdout == ["42\n"]
    assert (await sb.stats()).calls == 1 and await sb.is_running() and (await sb.plan())["hostname"] == "sandbox"
    other = await stockade.AsyncSandbox.connect(sb.sandbox_id)
    assert (await other.commands.run("echo x")).stdout == "x\n"
    await sb.remove_code_context(context)
    assert (await sb.files.write("a/b", "text")).size == 4 and await sb.files.read("a/b") == "text"
    assert [entry.name for entry in await sb.files.list("a")] == ["b"] and await sb.files.exists("a/b")
    watch = await sb.files.watch_dir("a")
    await sb.files.remove("a/b")
    assert [event.type.value for event in await watch.get_new_events()] == ["remove"]
    await sb.files.remove("a")
    assert await sb.kill() and not await sb.is_running() and sb.report


@in_loop
async def test_a_terminal(sb: stockade.AsyncSandbox) -> None:
    pieces: List[bytes] = []
    shell = await sb.pty.create(
        stockade.PtySize(rows=9, cols=33), pieces.append, cmd=["sh", "-c", "stty size; read a; echo $a"]
    )
    await sb.pty.send_stdin(shell.pid, b"typed\n")
    assert "9 33" in (await shell.wait()).stdout
    while b"typed" not in b"".join(pieces):
        await asyncio.sleep(0.02)


def test_a_sandbox_starts_when_it_is_entered() -> None:
    async def enter() -> None:
        sandbox = stockade.AsyncSandbox(hostname="entered")
        with pytest.raises(AttributeError, match="not started"):
            await sandbox.commands.run("true")
        assert "not started" in repr(sandbox)
        async with sandbox as sb:
            assert sb is sandbox and (await sb.commands.run("hostname")).stdout == "entered\n"
            async with sb:
                assert sb.sandbox_id in repr(sb)
            assert not await sb.is_running()
        with pytest.raises(stockade.SetupError, match="/no/such"):
            async with stockade.AsyncSandbox(workspace="/no/such"):
                pass

    asyncio.run(enter())


def test_every_public_name_is_there() -> None:
    def names(kind: Any) -> "set[str]":
        return {name for name in dir(kind) if not name.startswith("_")}

    assert names(stockade.Sandbox) <= names(stockade.AsyncSandbox)
    assert names(stockade.Commands) <= names(stockade.AsyncCommands)
    assert names(stockade.Files) <= names(AsyncFiles)
    assert names(stockade.Pty) <= names(AsyncPty)
    assert names(stockade.WatchHandle) <= names(AsyncWatchHandle)
    assert names(stockade.CommandHandle) - {"when_over"} <= names(stockade.AsyncCommandHandle)


def test_a_pool_gives_to_asyncio() -> None:
    async def take(pool: stockade.Pool) -> None:
        async with await stockade.AsyncSandbox.of(pool, timeout=60) as sandbox:
            assert (await sandbox.run_code("x")).text == "1"

    with stockade.Pool(size=1, setup="x = 1") as pool:
        asyncio.run(take(pool))
