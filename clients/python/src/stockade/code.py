"""`sandbox.run_code`: interpreters that keep what the code defines."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, TypedDict

from stockade._driver import LANGUAGES, Language
from stockade._interpreter import Handlers, Interpreter
from stockade._limits import Calls
from stockade._options import Size, Time, User, command_limits, one_env, user_field
from stockade._protocol import text
from stockade._session import Session
from stockade._streams import MAX_OUTPUT, OutputHandler
from stockade.errors import InvalidArgument
from stockade.execution import Execution, ExecutionError, Result


class CodeOptions(TypedDict, total=False):
    """The keywords of `run_code`."""

    on_stdout: Optional[OutputHandler]
    on_stderr: Optional[OutputHandler]
    on_result: Optional[Callable[[Result], object]]
    on_error: Optional[Callable[[ExecutionError], object]]
    envs: Optional[Mapping[str, str]]
    env: Optional[Mapping[str, str]]
    timeout: Optional[Time]
    max_output: Optional[int]


class ContextOptions(TypedDict, total=False):
    """The keywords of `create_code_context`."""

    user: Optional[User]
    envs: Optional[Mapping[str, str]]
    memory: Optional[Size]
    cpus: Optional[float]
    pids: Optional[int]


@dataclass(frozen=True)
class Context:
    """An interpreter in a sandbox."""

    id: str
    language: str
    cwd: Optional[str]
    _interpreter: Interpreter = field(repr=False, compare=False)

    def interrupt(self) -> None:
        """Interrupts the code that runs in it, as ctrl-C does."""
        self._interpreter.interrupt()

    def kill(self) -> None:
        """Ends it. What it has defined is lost."""
        self._interpreter.kill()


class Code:
    """The interpreters of a sandbox."""

    def __init__(self, session: Session, calls: Calls, programs: Mapping[str, Sequence[str]]) -> None:
        self._session = session
        self._calls = calls
        self._programs = programs
        self._contexts: Dict[str, Context] = {}
        self._defaults: Dict[str, Context] = {}
        self._lock = threading.RLock()
        self._last = 0

    def context(
        self,
        language: str = "python",
        cwd: Optional[str] = None,
        user: Optional[User] = None,
        envs: Optional[Mapping[str, str]] = None,
        memory: Optional[Size] = None,
        cpus: Optional[float] = None,
        pids: Optional[int] = None,
        start_timeout: float = 60.0,
    ) -> Context:
        """A new interpreter, with variables and limits of its own."""
        name = {"py": "python", "js": "node", "javascript": "node", "sh": "bash"}.get(language, language)
        if name not in LANGUAGES:
            raise InvalidArgument(f"{language!r} is not one of {', '.join(LANGUAGES)}")
        fields: Dict[str, Any] = {}
        if cwd is not None:
            fields["cwd"] = text(cwd)
        if user is not None:
            fields["user"] = user_field(user)
        if envs:
            fields["add_env"] = [text(f"{key}={value}") for key, value in envs.items()]
        fields.update((key, value) for key, value in command_limits(memory, pids, cpus).items() if value is not None)
        language_ = Language(name, self._programs.get(name))
        with self._lock:
            self._last += 1
            context = Context(f"x{self._last}", name, cwd, Interpreter(self._session, language_, fields, start_timeout))
            self._contexts[context.id] = context
        return context

    def default(self, language: str) -> Context:
        """The interpreter of a language that is used if none is named."""
        with self._lock:
            context = self._defaults.get(language)
            if context is None:
                context = self._defaults[language] = self.context(language)
        return context

    def list(self) -> List[Context]:
        """The interpreters of this sandbox."""
        return list(self._contexts.values())

    def remove(self, context: Context) -> None:
        """Ends an interpreter."""
        context.kill()
        with self._lock:
            self._contexts.pop(context.id, None)
            self._defaults = {name: one for name, one in self._defaults.items() if one is not context}

    def prepare(self, code: str, language: str) -> Execution:
        """Runs code of the library's user rather than of an agent: it is no call."""
        return self.default(language)._interpreter.run(code, {}, None, MAX_OUTPUT, Handlers())

    def close(self) -> None:
        """Ends all of them."""
        for context in self.list():
            self.remove(context)

    def run(
        self,
        code: str,
        language: Optional[str] = None,
        context: Optional[Context] = None,
        on_stdout: Optional[OutputHandler] = None,
        on_stderr: Optional[OutputHandler] = None,
        on_result: Optional[Callable[[Result], object]] = None,
        on_error: Optional[Callable[[ExecutionError], object]] = None,
        envs: Optional[Mapping[str, str]] = None,
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[Time] = None,
        max_output: Optional[int] = MAX_OUTPUT,
    ) -> Execution:
        """See `Sandbox.run_code`."""
        if language is not None and context is not None:
            raise InvalidArgument("give a language or a context, not both")
        if timeout is not None and not 0 < timeout < 1e9:
            raise InvalidArgument(f"timeout: {timeout!r} is not a number of seconds above zero")
        self._session.check()
        self._calls.take()
        chosen = context or self.default(language or "python")
        handlers = Handlers(on_stdout, on_stderr, on_result, on_error)
        added = one_env({"envs": envs, "env": env})
        return chosen._interpreter.run(code, added, timeout, max_output, handlers)
