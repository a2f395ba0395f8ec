"""`stockade-mcp`: a sandbox for a model, as a server of the Model Context Protocol over stdio.

What the sandbox may do is fixed by this program's command line. No tool changes it.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from typing import Any, Dict, List, Optional, Sequence

from stockade.errors import CommandError, Error
from stockade.execution import Execution
from stockade.results import CommandResult
from stockade.sandbox import Sandbox

SHOWN = 50_000
"""How many characters of an output a model is shown."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parsed = argparse.ArgumentParser(
        prog="stockade-mcp",
        description="Offers one sandbox to an MCP client over standard input and output.",
        epilog="Words after -- are flags of `stockade run`, such as: stockade-mcp --memory 1G -- --ro /data",
    )
    parsed.add_argument("--workspace", metavar="DIR", help="mount DIR read-write at /workspace")
    parsed.add_argument("--ro", metavar="PATH", action="append", default=[], help="mount PATH read-only")
    parsed.add_argument("--memory", metavar="SIZE", help="memory limit of the sandbox")
    parsed.add_argument("--cpus", type=float, metavar="N", help="CPU limit of the sandbox")
    parsed.add_argument("--pids", type=int, metavar="N", help="limit on its processes")
    parsed.add_argument("--allow-net", metavar="HOST[:PORTS]", action="append", default=[], help="let it reach HOST")
    parsed.add_argument("--python", metavar="PROGRAM", help="the Python for run_code, as the sandbox sees it")
    parsed.add_argument("--command-timeout", type=float, metavar="S", default=120.0, help="longest command or code; 120 s")
    parsed.add_argument("--max-calls", type=int, metavar="N", help="limit on calls in all")
    parsed.add_argument("--calls-per-minute", type=int, metavar="N", help="limit on calls a minute")
    parsed.add_argument("flags", nargs="*", metavar="FLAG", help="further flags of `stockade run`, after --")
    return parsed


def sandbox_of(given: argparse.Namespace) -> Sandbox:
    """The sandbox that the command line describes."""
    options: Dict[str, Any] = {"workspace": given.workspace, "memory": given.memory, "cpus": given.cpus, "pids": given.pids}
    options = {name: value for name, value in options.items() if value is not None}
    return Sandbox(
        ro=given.ro,
        allow_net=given.allow_net,
        args=given.flags,
        interpreters={"python": [given.python]} if given.python else None,
        max_calls=given.max_calls,
        calls_per_minute=given.calls_per_minute,
        **options,
    )


def _shown(**fields: Any) -> str:
    """As JSON, without what is empty; long texts are cut, and say so."""
    return json.dumps({name: _cut(value) for name, value in fields.items() if value not in (None, "")}, ensure_ascii=False)


def _cut(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= SHOWN:
        return value
    return f"{value[:SHOWN]}\n[{len(value) - SHOWN} characters more]"


def _command(result: CommandResult) -> str:
    return _shown(exit_code=result.exit_code, error=result.error, stdout=result.stdout, stderr=result.stderr)


def _execution(done: Execution) -> str:
    error = done.error and (done.error.traceback or f"{done.error.name}: {done.error.value}")
    return _shown(text=done.text, error=error, stdout="".join(done.logs.stdout), stderr="".join(done.logs.stderr))


def serve(sandbox: Sandbox, timeout: float) -> None:
    """Serves until the client closes standard input."""
    from mcp.server.mcpserver import Image, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server = MCPServer("stockade", instructions="A sandbox that stays: its commands, code and files see each other.")

    @server.tool(structured_output=False)
    def run_command(command: str, cwd: Optional[str] = None, stdin: Optional[str] = None) -> str:
        """Run a shell command in the sandbox. Returns exit code, output and errors."""
        try:
            return _command(sandbox.commands.run(command, cwd=cwd, stdin=stdin, timeout=timeout, check=False))
        except Error as error:
            raise ToolError(str(error)) from None

    @server.tool(structured_output=False)
    def run_code(code: str, language: str = "python") -> List[Any]:
        """Run code in an interpreter that keeps its variables: python, node or bash. Pictures of matplotlib are returned."""
        try:
            done = sandbox.run_code(code, language=language, timeout=timeout)
        except CommandError as error:
            return [_shown(error=str(error), stdout=error.stdout, stderr=error.stderr)]
        except Error as error:
            raise ToolError(str(error)) from None
        pictures = [Image(data=base64.b64decode(one.png), format="png") for one in done.results if one.png]
        return [_execution(done), *pictures]

    @server.tool(structured_output=False)
    def write_file(path: str, content: str) -> str:
        """Write a file in the sandbox. Directories on the way are made."""
        try:
            return f"{sandbox.files.write(path, content).size} bytes"
        except Error as error:
            raise ToolError(str(error)) from None

    @server.tool(structured_output=False)
    def read_file(path: str) -> str:
        """Read a text file of the sandbox."""
        try:
            return str(_cut(sandbox.files.read(path, max_size="16M")))
        except Error as error:
            raise ToolError(str(error)) from None

    @server.tool(structured_output=False)
    def list_files(path: str = ".", depth: int = 1) -> str:
        """List a directory of the sandbox."""
        try:
            entries = sandbox.files.list(path, depth=max(1, depth))
        except Error as error:
            raise ToolError(str(error)) from None
        return str(_cut("\n".join(f"{entry.permissions} {entry.size:>9} {entry.path}" for entry in entries)))

    @server.tool(structured_output=False)
    def network_log() -> str:
        """The connections of the sandbox, and what was refused."""
        try:
            events = sandbox.net_log()
        except Error as error:
            raise ToolError(str(error)) from None
        lines = (f"{one.time} {one.name or one.address}:{one.port} {one.result} {one.reason or ''}" for one in events)
        return str(_cut("\n".join(lines)))

    server.run("stdio")


def main(words: Optional[Sequence[str]] = None) -> int:
    """The program `stockade-mcp`."""
    given = parser().parse_args(words)
    try:
        import mcp  # noqa: F401
    except ImportError:
        print("stockade-mcp: the official SDK is missing: pip install 'stockade[mcp]'", file=sys.stderr)
        return 1
    try:
        with sandbox_of(given) as sandbox:
            serve(sandbox, given.command_timeout)
    except Error as error:
        print(f"stockade-mcp: {error}", file=sys.stderr)
        return 125
    return 0


if __name__ == "__main__":
    sys.exit(main())
