"""A command that runs in a session: its streams, and the wait for its end."""

from __future__ import annotations

import os
import select
from typing import Any, Dict, Optional, Protocol, Union

from stockade._owned import Fd
from stockade._protocol import Connection, accepted
from stockade._session import Session
from stockade._streams import Feeder, Output, OutputHandler
from stockade.errors import ProtocolError
from stockade.results import CommandResult, Report, result_of

Stdin = Union[bool, str, bytes, None]


class Channel(Protocol):
    """Something else to wait for."""

    @property
    def fd(self) -> int: ...
    @property
    def wants(self) -> int: ...
    def turn(self) -> None: ...


class Running:
    """One command. One thread at a time waits for it."""

    def __init__(
        self,
        session: Session,
        fields: Dict[str, Any],
        stdin: Union[Stdin, Fd] = None,
        on_stdout: Optional[OutputHandler] = None,
        on_stderr: Optional[OutputHandler] = None,
        max_output: Optional[int] = None,
        waits: bool = True,
    ) -> None:
        self.session = session
        self.command: Optional[str] = None
        self.pid: Optional[int] = None
        self.report: Optional[Report] = None
        self.stdin: Optional[Fd] = None
        self._feeder: Optional[Feeder] = None
        self._connection: Connection = session.acquire(waits)
        self._reusable = self._left = False
        read_end = null = session.null.number
        out, out_end = os.pipe()
        error, error_end = os.pipe()
        try:
            if isinstance(stdin, Fd):
                read_end = os.dup(stdin.number)
            elif stdin is True:
                read_end, write_end = os.pipe()
                self.stdin = Fd(write_end)
            elif stdin is not None and stdin is not False:
                read_end, write_end = os.pipe()
                self._feeder = Feeder(write_end, stdin.encode() if isinstance(stdin, str) else bytes(stdin))
            self.outputs = (Output(out, max_output, on_stdout), Output(error, max_output, on_stderr))
            self._id = self._connection.send("run", (read_end, out_end, error_end), fields)
        except BaseException:
            if not hasattr(self, "outputs"):
                os.close(out)
                os.close(error)
            self.give_up()
            raise
        finally:
            os.close(out_end)
            os.close(error_end)
            if read_end != null:
                os.close(read_end)

    def wait(self) -> CommandResult:
        """Collects its output until it has ended. If that is interrupted, it is killed."""
        try:
            while self.report is None:
                self.turn()
            out, error = self.outputs
            for output in self.outputs:
                output.drain()
                output.finish()
            return result_of(self.report, out.text, error.text, (out.truncated, error.truncated))
        finally:
            self.give_up()

    def turn(self, channel: Optional[Channel] = None, timeout: Optional[float] = None) -> None:
        """Waits until something happens besides input and output, at most for `timeout` seconds."""
        polled = select.poll()
        number = self._connection.fileno()
        polled.register(number, select.POLLIN)
        by_fd = {output.fd: output for output in self.outputs if output.open}
        for fd in by_fd:
            polled.register(fd, select.POLLIN)
        feeder = self._feeder if self._feeder is not None and self._feeder.open else None
        if feeder is not None:
            polled.register(feeder.fd, select.POLLOUT)
        if channel is not None:
            polled.register(channel.fd, channel.wants)
        while True:
            ready = polled.poll(None if timeout is None else max(0, timeout * 1000))
            heard = not ready
            for fd, _ in ready:
                if fd == number:
                    self._hear()
                    heard = True
                elif fd in by_fd:
                    by_fd[fd].read()
                    if not by_fd[fd].open:
                        polled.unregister(fd)
                        del by_fd[fd]
                elif feeder is not None and fd == feeder.fd:
                    feeder.write()
                    if not feeder.open:
                        polled.unregister(fd)
                        feeder = None
                elif channel is not None:
                    channel.turn()
                    heard = True
            if heard or timeout is not None:
                return

    def _hear(self) -> None:
        reply, fds = self._connection.receive()
        for fd in fds:
            os.close(fd)
        if reply.get("id") != self._id:
            return
        event = reply.get("event")
        if event == "started":
            command, pid = reply.get("command"), reply.get("pid")
            self.command = command if isinstance(command, str) else None
            self.pid = pid if isinstance(pid, int) else None
            return
        self._reusable = True
        report = accepted(reply).get("report")
        if event != "done" or not isinstance(report, dict):
            raise ProtocolError("the session sent no report of a command")
        self.report = report

    def signal(self, number: int) -> None:
        """Sends a signal."""
        self.session.ask("signal", command=self.command, signal=number)

    def kill(self) -> None:
        """Kills it with everything that it started."""
        self.session.ask("kill", command=self.command)

    def give_up(self) -> None:
        """Closes everything of it, which kills it unless it has ended."""
        if self._left:
            return
        self._left = True
        for output in getattr(self, "outputs", ()):
            output.close()
        if self._feeder is not None:
            self._feeder.close()
        if self.stdin is not None:
            self.stdin.close()
        self.session.release(self._connection, self._reusable)
