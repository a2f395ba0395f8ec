"""`sandbox.pty`: shells and other programs that want a terminal, with the names of E2B's SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Mapping, Optional, TypedDict, Union

from stockade._options import Command, Time, User
from stockade._running import PtySize
from stockade.commands import CommandHandle, Commands
from stockade.errors import NotFound

if TYPE_CHECKING:
    from typing_extensions import Unpack

PtyHandler = Callable[[bytes], object]


class PtyOptions(TypedDict, total=False):
    """The keywords of `pty.create`."""

    cmd: Command
    cwd: Optional[str]
    user: Optional[User]
    envs: Optional[Mapping[str, str]]
    timeout: Optional[Time]


class Pty:
    """The terminals of a sandbox."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def create(
        self,
        size: Optional[PtySize] = None,
        on_data: Optional[PtyHandler] = None,
        **options: "Unpack[PtyOptions]",
    ) -> CommandHandle:
        """A command in a terminal of its own, in the background: a shell, if `cmd` is not given.

        `on_data` gets what it shows, in UTF-8.
        """
        shows = on_data
        return self._commands.run(
            options.get("cmd", ("/bin/sh", "-i")),
            background=True,
            cwd=options.get("cwd"),
            user=options.get("user"),
            envs={"TERM": "xterm", **(options.get("envs") or {})},
            timeout=options.get("timeout"),
            on_stdout=None if shows is None else lambda text: shows(text.encode()),
            pty=size or PtySize(),
        )

    def send_stdin(self, pid: int, data: Union[str, bytes]) -> None:
        """Types into a terminal."""
        self._commands.send_stdin(pid, data)

    def resize(self, pid: int, size: PtySize) -> None:
        """Sets the size of a terminal."""
        self._commands.connect(pid).resize(size)

    def kill(self, pid: int) -> bool:
        """Kills the command of a terminal with everything that it started. Whether it still ran."""
        try:
            return self._commands.connect(pid).kill()
        except NotFound:
            return False
