"""The MCP server, driven by the SDK's own client."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from pathlib import Path
from typing import Any, Awaitable, Callable, List

import pytest
from conftest import pictures

pytest.importorskip("mcp")


def with_server(words: List[str], use: Callable[[Any], Awaitable[None]]) -> None:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def drive() -> None:
        server = StdioServerParameters(command=sys.executable, args=["-m", "stockade.mcp_server", *words], env=dict(os.environ))
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            await use(session)

    asyncio.run(asyncio.wait_for(drive(), 120))


async def call(session: Any, tool: str, **words: Any) -> Any:
    answer = await session.call_tool(tool, words)
    return json.loads(answer.content[0].text)


def test_a_model_runs_commands_and_code_and_no_tool_changes_the_policy(tmp_path: Path) -> None:
    async def use(session: Any) -> None:
        tools = {tool.name for tool in (await session.list_tools()).tools}
        assert {"run_command", "run_code", "write_file", "read_file", "list_files"} <= tools
        await session.call_tool("write_file", {"path": "/tmp/a/b.txt", "content": "text"})
        read = await session.call_tool("read_file", {"path": "/tmp/a/b.txt"})
        assert read.content[0].text == "text"
        listed = await session.call_tool("list_files", {"path": "/tmp", "depth": 2})
        assert "/tmp/a/b.txt" in listed.content[0].text
        missing = await session.call_tool("read_file", {"path": "/nope"})
        assert missing.is_error and "No such file" in missing.content[0].text
        assert not any("allow" in name or "policy" in name for name in tools)
        assert await call(session, "run_command", command="pwd; cat", stdin="fed") == {
            "exit_code": 0,
            "stdout": "/workspace\nfed",
        }
        failed = await call(session, "run_command", command="echo no >&2; exit 3")
        assert failed == {"exit_code": 3, "error": "exit code 3", "stderr": "no\n"}
        late = await call(session, "run_command", command="sleep 60")
        assert late["exit_code"] == 124
        await call(session, "run_code", code="x = 41")
        assert await call(session, "run_code", code="x + 1") == {"text": "42"}
        assert "ZeroDivisionError" in (await call(session, "run_code", code="1 / 0"))["error"]
        assert "longer than" in (await call(session, "run_code", code="while True: pass"))["error"]
        assert (await call(session, "run_code", code="echo $((1 + 1))", language="bash"))["stdout"] == "2\n"
        long = await call(session, "run_command", command="head -c 100000 /dev/zero | tr '\\0' x")
        assert "50000 characters more" in long["stdout"] and len(long["stdout"]) < 51000
        assert (await call(session, "run_command", command="ulimit -n"))["stdout"] == "77\n"

    with_server(["--workspace", str(tmp_path), "--command-timeout", "2", "--", "--ulimit", "nofile=77"], use)


def test_pictures_are_shown() -> None:
    pytest.importorskip("matplotlib")
    given = pictures()
    words = [f"--ro={path}" for path in given["ro"]] + ["--python", given["interpreters"]["python"][0], "--", *given["args"]]

    async def use(session: Any) -> None:
        answer = await session.call_tool("run_code", {"code": "import matplotlib.pyplot as p; p.plot([1, 2]); None"})
        assert [one.type for one in answer.content] == ["text", "image"], answer
        assert base64.b64decode(answer.content[1].data).startswith(b"\x89PNG")

    with_server(words, use)


def test_calls_are_limited() -> None:
    async def use(session: Any) -> None:
        assert (await call(session, "run_command", command="true"))["exit_code"] == 0
        refused = await session.call_tool("run_command", {"command": "true"})
        text = refused.content[0].text
        assert "1 calls" in text, refused

    with_server(["--max-calls", "1"], use)


def test_what_cannot_start_says_why() -> None:
    import subprocess

    words = [sys.executable, "-m", "stockade.mcp_server", "--ro", "/no/such"]
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert ended.returncode == 125 and "/no/such" in ended.stderr and not ended.stdout


def in_a_sandbox(flags: List[str], command: List[str], use: Callable[[Any], Awaitable[None]]) -> None:
    """Another server, with `stockade run` before its command."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    from stockade._program import program

    async def drive() -> None:
        words = ["run", "-i", "--follow", *flags, "--", *command]
        server = StdioServerParameters(command=program(), args=words, env=dict(os.environ))
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            await use(session)

    asyncio.run(asyncio.wait_for(drive(), 120))


@pytest.mark.skipif("STOCKADE_NODE_SERVER" not in os.environ, reason="no server from npm was installed")
def test_a_server_from_npm_runs_in_a_sandbox(tmp_path: Path) -> None:
    server = Path(os.environ["STOCKADE_NODE_SERVER"])
    modules = server.parents[3]

    async def use(session: Any) -> None:
        await session.call_tool("write_file", {"path": "/workspace/a.txt", "content": "hi"})
        # Its own checks are told to allow everything: what it cannot see, the sandbox hides.
        hidden = await session.call_tool("list_directory", {"path": "/root"})
        assert "ENOENT" in hidden.content[0].text or "EACCES" in hidden.content[0].text, hidden

    in_a_sandbox(
        [f"--ro={modules}", f"--workspace={tmp_path}", "--network=none"], ["node", str(server), "/workspace", "/"], use
    )
    assert (tmp_path / "a.txt").read_text() == "hi"


@pytest.mark.skipif("STOCKADE_PYTHON_SERVER" not in os.environ, reason="no server from PyPI was installed")
def test_a_server_from_pypi_runs_in_a_sandbox() -> None:
    place = os.environ["STOCKADE_PYTHON_SERVER"]

    async def use(session: Any) -> None:
        answer = await session.call_tool("get_current_time", {"timezone": "UTC"})
        assert "UTC" in answer.content[0].text, answer

    command = [f"{place}/bin/python", "-m", "mcp_server_time", "--local-timezone", "UTC"]
    in_a_sandbox([f"--ro={place}", "--network=none"], command, use)
