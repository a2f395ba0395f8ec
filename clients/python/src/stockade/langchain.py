"""Tools for agents of LangChain: `create_agent(model, tools=sandbox_tools(sandbox))`."""

from __future__ import annotations

from typing import List

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from stockade.errors import CommandError, Error
from stockade.sandbox import Sandbox


def sandbox_tools(sandbox: Sandbox, *, timeout: float = 60.0, max_output: int = 50_000) -> List[BaseTool]:
    """The tools `run_command` and `run_code` over a sandbox, whose policy they cannot change."""

    def run_command(command: str) -> str:
        """Run a shell command in the sandbox. Its files stay for later calls. Returns output, errors and exit code."""
        try:
            result = sandbox.commands.run(command, timeout=timeout, max_output=max_output, check=False)
        except Error as error:
            raise ToolException(str(error)) from None
        ends = [] if result.exit_code == 0 else [f"[{result.error}]"]
        return "\n".join([result.stdout, result.stderr, *ends]).strip()

    def run_code(code: str) -> str:
        """Run Python code. Variables stay for later calls. Returns what it prints and the value of its last expression."""
        try:
            done = sandbox.run_code(code, timeout=timeout, max_output=max_output)
        except CommandError as error:
            raise ToolException(f"{error.stdout}\n{error}".strip()) from None
        except Error as error:
            raise ToolException(str(error)) from None
        if done.error is not None:
            raise ToolException("".join(done.logs.stdout) + done.error.traceback)
        return "".join([*done.logs.stdout, *done.logs.stderr, done.text or ""]).strip()

    return [StructuredTool.from_function(tool, handle_tool_error=True) for tool in (run_command, run_code)]
