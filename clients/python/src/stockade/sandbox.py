"""`Sandbox`: a sandbox that stays until it is killed, left, forgotten, or its process ends."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Type

from stockade._limits import Calls
from stockade._options import SHELL, SandboxOptions
from stockade._session import Session, start
from stockade._streams import MAX_OUTPUT
from stockade.code import Code, CodeOptions, Context, ContextOptions
from stockade.commands import Commands
from stockade.errors import Error, SandboxEnded
from stockade.execution import Execution
from stockade.files import Files
from stockade.net import NetEvent, events_of
from stockade.pty import Pty
from stockade.results import Report, Usage, usage_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Stats:
    """A sandbox at this moment."""

    usage: Usage
    """Of all of its processes together."""
    running: int
    ended: int
    """How many commands have ended; the last hundred are counted."""
    calls: int
    """How many calls were made through this object."""
    paused: bool
    created_at: str


class Sandbox:
    """A sandbox. The keywords are those of `stockade.run`, and:

    `timeout`: its life in seconds; `idle_stop`: it ends when it was not used for so long; `name`: see `stockade ps`;
    `shell`: for commands that are strings; `interpreters`: for `run_code`, such as `{"python": ["/opt/env/bin/python3"]}`;
    `max_calls`, `calls_per_minute`: limits for an agent.
    """

    def __init__(self, **options: "Unpack[SandboxOptions]") -> None:
        name, lifetime, idle_stop = options.pop("name", None), options.pop("timeout", None), options.pop("idle_stop", None)
        calls = Calls(options.pop("max_calls", None), options.pop("calls_per_minute", None))
        shell, interpreters = options.pop("shell", SHELL), options.pop("interpreters", None)
        session = start(options, name, lifetime, idle_stop)
        self._begin(session, calls, Commands(session, calls, shell, bool(options.get("explain_denials"))), interpreters)
        # However this object ends: by the collector, or at the exit of the interpreter.
        self._finalizer = weakref.finalize(self, session.abandon)

    def _begin(
        self, session: Session, calls: Calls, commands: Commands, interpreters: Optional[Mapping[str, Sequence[str]]]
    ) -> None:
        self._session = session
        self._calls = calls
        self._code = Code(session, calls, interpreters or {})
        self.commands = commands
        self.pty = Pty(commands)
        self.files = Files(session, calls)

    @classmethod
    def create(cls, **options: "Unpack[SandboxOptions]") -> "Sandbox":
        """As the constructor."""
        return cls(**options)

    @classmethod
    def connect(cls, sandbox_id: str, *, shell: Sequence[str] = SHELL) -> "Sandbox":
        """A session that another program of this user made. It goes on when this object ends, unless `kill` is called."""
        sandbox = cls.__new__(cls)
        session, calls = Session(sandbox_id), Calls(None, None)
        sandbox._begin(session, calls, Commands(session, calls, shell, False), None)
        sandbox._session.ask("ping")
        return sandbox

    @property
    def sandbox_id(self) -> str:
        """The name of its session."""
        return self._session.name

    @property
    def report(self) -> Optional[Report]:
        """After `kill`: the report of the whole sandbox."""
        return self._session.report

    def run_code(
        self, code: str, language: Optional[str] = None, context: Optional[Context] = None, **options: "Unpack[CodeOptions]"
    ) -> Execution:
        """Runs code in an interpreter that stays: `python`, `node` or `bash`.

        An exception of the code is `error` of what is returned. A call over its `timeout` is interrupted and raises `Timeout`.
        """
        return self._code.run(code, language, context, **options)

    def create_code_context(
        self, cwd: Optional[str] = None, language: str = "python", **options: "Unpack[ContextOptions]"
    ) -> Context:
        """An interpreter with variables and limits of its own, for `run_code(context=…)`."""
        return self._code.context(language, cwd, **options)

    def list_code_contexts(self) -> List[Context]:
        """The interpreters of this sandbox."""
        return self._code.list()

    def remove_code_context(self, context: Context) -> None:
        """Ends an interpreter."""
        self._code.remove(context)

    def interrupt(self, language: str = "python") -> None:
        """Interrupts the code that another thread runs, as ctrl-C does."""
        self._code.default(language).interrupt()

    def is_running(self) -> bool:
        """Whether it answers."""
        try:
            self._session.ask("ping")
        except (SandboxEnded, OSError):
            return False
        except Error:
            return self._session.is_open
        return True

    def stats(self) -> Stats:
        """Usage of the whole sandbox, and its commands."""
        status = self._status()
        running, ended = status.get("running"), status.get("ended")
        return Stats(
            usage=usage_of(status.get("usage")),
            running=len(running) if isinstance(running, list) else 0,
            ended=len(ended) if isinstance(ended, list) else 0,
            calls=self._calls.count,
            paused=status.get("paused") is True,
            created_at=str(status.get("created_at")),
        )

    def plan(self) -> Dict[str, Any]:
        """What it may do, as `stockade plan --json` shows it."""
        plan = self._status().get("plan")
        return plan if isinstance(plan, dict) else {}

    def _status(self) -> Dict[str, Any]:
        status = self._session.ask("status").get("status")
        return status if isinstance(status, dict) else {}

    def allow_net(self, rule: str) -> None:
        """Lets it reach a host from now on, such as `api.example.com:443`. It was made with `allow_net`."""
        self._session.ask("allow_net", rule=rule)

    def deny_net(self, rule: str) -> None:
        """Denies a host from now on, and ends its connections."""
        self._session.ask("deny_net", rule=rule)

    def net_log(self) -> List[NetEvent]:
        """The last thousand connections and refusals."""
        _, fd = self._session.ask_for_fd("net_log")
        with open(fd, encoding="utf-8", errors="replace") as lines:
            return events_of(lines.read(MAX_OUTPUT).splitlines())

    def pause(self) -> None:
        """Stops all of its processes, without a signal that they could notice. Needs cgroup v2."""
        self._session.ask("pause")

    def resume(self) -> None:
        """Lets them continue."""
        self._session.ask("unpause")

    def kill(self, grace: float = 0.0) -> bool:
        """Ends it. When this returns, all processes in it are dead. Whether it still ran."""
        ran = self._session.end(grace)
        self._code.close()
        return ran

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        self.kill()

    def __repr__(self) -> str:
        return f"<stockade.Sandbox {self.sandbox_id}{'' if self._session.is_open else ', ended'}>"
