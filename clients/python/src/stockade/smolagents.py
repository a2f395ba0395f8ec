"""An executor for agents of smolagents: `CodeAgent(…, executor=SandboxExecutor())`."""

from __future__ import annotations

from typing import Any, List, Optional

from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError

from stockade.errors import CommandError
from stockade.sandbox import Sandbox


class SandboxExecutor(RemotePythonExecutor):  # type: ignore[misc]
    """Runs an agent's code in a sandbox. The keywords are those of `Sandbox`. Packages are those that the sandbox has."""

    def __init__(
        self, sandbox: Optional[Sandbox] = None, *, timeout: float = 60.0, logger: Optional[AgentLogger] = None, **options: Any
    ) -> None:
        # What comes back is read as JSON: pickles of an agent's making would run here.
        super().__init__([], logger or AgentLogger(), allow_pickle=False)
        self._timeout = timeout
        self.sandbox = sandbox or Sandbox(**options)

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Runs a piece of code."""
        try:
            done = self.sandbox.run_code(code, timeout=self._timeout)
        except CommandError as error:
            raise AgentError(f"{error.stdout}\n{error}", self.logger) from None
        logs = "".join(done.logs.stdout)
        if done.error is None:
            return CodeOutput(output=done.text, logs=logs, is_final_answer=False)
        if done.error.name == self.FINAL_ANSWER_EXCEPTION:
            answer = self._deserialize_final_answer(done.error.value, False)
            return CodeOutput(output=answer, logs=logs, is_final_answer=True)
        raise AgentError(f"{logs}\n{done.error.traceback}", self.logger)

    def install_packages(self, additional_imports: List[str]) -> List[str]:
        """Installs nothing: what a sandbox has is its policy's matter."""
        return additional_imports

    def cleanup(self) -> None:
        """Ends the sandbox."""
        self.sandbox.kill()
