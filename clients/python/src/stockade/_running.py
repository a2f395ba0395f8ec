"""A command that runs in a session: its streams, and the wait for its end."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Tuple, Union

from stockade._owned import Fd
from stockade._protocol import Connection, accepted
from stockade._session import Session
from stockade._streams import Feeder, Output, OutputHandler
from stockade.errors import Error, InvalidArgument, ProtocolError
from stockade.results import CommandResult, Report, result_of

Stdin = Union[bool, str, bytes, None]


class PtySize(NamedTuple):
    """The size of a terminal, in characters."""

    rows: int = 24
    cols: int = 80


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
        tty: Optional[PtySize] = None,
    ) -> None:
        self.session = session
        self.command: Optional[str] = None
        self.pid: Optional[int] = None
        self.report: Optional[Report] = None
        self.stdin: Optional[Fd] = None
        self.outputs: Tuple[Output, ...] = ()
        self._keeps = (max_output, on_stdout)
        self._tty = tty is not None
        self._typed = b"" if stdin is None or isinstance(stdin, (bool, Fd)) else _bytes(stdin)
        self._feeder: Optional[Feeder] = None
        self._connection: Connection = session.acquire(waits)
        self._reusable = self._left = False
        try:
            if tty is not None:
                fields = {**fields, "tty": {"rows": tty[0], "columns": tty[1]}}
                self._id = self._connection.send("run", (), fields)
            else:
                self._id = self._send_with_pipes(fields, stdin, on_stderr)
        except BaseException:
            self.give_up()
            raise

    def _send_with_pipes(self, fields: Dict[str, Any], stdin: Union[Stdin, Fd], on_stderr: Optional[OutputHandler]) -> int:
        read_end = null = self.session.null.number
        max_output, on_stdout = self._keeps
        theirs: List[int] = []
        try:
            for handler in (on_stdout, on_stderr):
                ours, end = os.pipe()
                theirs.append(end)
                self.outputs += (Output(ours, max_output, handler),)
            if isinstance(stdin, Fd):
                read_end = os.dup(stdin.number)
            elif stdin is True:
                read_end, write_end = os.pipe()
                self.stdin = Fd(write_end)
            elif stdin is not None and stdin is not False:
                read_end, write_end = os.pipe()
                self._feeder = Feeder(write_end, self._typed)
            return self._connection.send("run", (read_end, *theirs), fields)
        finally:
            for end in theirs:
                os.close(end)
            if read_end != null:
                os.close(read_end)

    def text(self, number: int) -> str:
        """What it has printed so far to an output. A terminal is one output."""
        return self.outputs[number].text if number < len(self.outputs) else ""

    def wait(self) -> CommandResult:
        """Collects its output until it has ended. If that is interrupted, it is killed."""
        try:
            while self.report is None:
                self.turn(to_the_end=True)
            for output in self.outputs:
                output.drain()
                output.finish()
            return result_of(self.report, self.text(0), self.text(1), tuple(one.truncated for one in self.outputs))
        finally:
            self.give_up()

    def turn(self, channel: Optional[Channel] = None, timeout: Optional[float] = None, to_the_end: bool = False) -> None:
        """Waits until something happens besides input and output, at most for `timeout` seconds.

        With `to_the_end` the start is nothing to return for, except that a terminal comes with it.
        """
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
                    heard = self.report is not None or self._tty or not to_the_end
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
        started = reply.get("id") == self._id and reply.get("event") == "started"
        if started and self._tty and len(fds) == 1:
            self._take_terminal(fds.pop())
        for fd in fds:
            os.close(fd)
        if reply.get("id") != self._id:
            return
        event = reply.get("event")
        if started:
            command, pid = reply.get("command"), reply.get("pid")
            self.command = command if isinstance(command, str) else None
            self.pid = pid if isinstance(pid, int) else None
            return
        self._reusable = True
        report = accepted(reply).get("report")
        if event != "done" or not isinstance(report, dict):
            raise ProtocolError("the session sent no report of a command")
        self.report = report

    def _take_terminal(self, master: int) -> None:
        max_output, handler = self._keeps
        self.outputs = (Output(master, max_output, handler),)
        self.stdin = Fd(os.dup(master))
        if self._typed:
            self._feeder = Feeder(os.dup(master), self._typed)

    def write(self, data: bytes) -> None:
        """Writes to its standard input."""
        if self.stdin is None:
            raise InvalidArgument("the command was not started with stdin=True or pty")
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self.stdin.number, rest) :]
            except BlockingIOError:  # a terminal, whose other copies are read without blocking
                writable = select.poll()
                writable.register(self.stdin.number, select.POLLOUT)
                writable.poll()
            except OSError:
                raise Error("the command reads no more input") from None

    def end_input(self) -> None:
        """The command reads the end of its input. A terminal stays open: it gets ctrl-D."""
        if self.stdin is None:
            return
        if self._tty:
            self.write(b"\x04")
        else:
            self.stdin.close()

    def resize(self, size: PtySize) -> None:
        """Sets the size of its terminal."""
        if not self._tty or self.stdin is None:
            raise InvalidArgument("the command was not started with pty")
        try:
            fcntl.ioctl(self.stdin.number, termios.TIOCSWINSZ, struct.pack("4H", size[0], size[1], 0, 0))
        except (OSError, ValueError):
            raise Error("the command has ended, and its terminal with it") from None
        except struct.error:
            raise InvalidArgument(f"{size!r} is not the size of a terminal") from None

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
        for output in self.outputs:
            output.close()
        if self._feeder is not None:
            self._feeder.close()
        if self.stdin is not None:
            self.stdin.close()
        self.session.release(self._connection, self._reusable)


def _bytes(data: Union[str, bytes, bool]) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data)
