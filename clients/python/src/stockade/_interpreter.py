"""An interpreter that stays in a sandbox: a command that is started when it is needed.

Nothing that it says is trusted. One that says what it was not asked is killed.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional

from stockade._channel import Channel
from stockade._driver import Language
from stockade._options import Time
from stockade._owned import Fd
from stockade._protocol import text
from stockade._running import Running
from stockade._session import Session
from stockade._streams import OutputHandler
from stockade.errors import Error, ProtocolError, SetupError, Timeout, raise_for
from stockade.execution import Execution, ExecutionError, Logs, Result, answer_of
from stockade.results import CommandResult

MOST_RESULTS = 1000
_GRACE = 2.0  # how long an interrupted interpreter has to answer


@dataclass(frozen=True)
class Handlers:
    """Who is told while code runs."""

    stdout: Optional[OutputHandler] = None
    stderr: Optional[OutputHandler] = None
    result: Optional[Callable[[Result], object]] = None
    error: Optional[Callable[[ExecutionError], object]] = None


class Interpreter:
    """One interpreter. It is started when it is first used, and again after it has died."""

    def __init__(self, session: Session, language: Language, fields: Dict[str, Any], start_timeout: float) -> None:
        self._session = session
        self._language = language
        self._fields = fields
        self._start_timeout = start_timeout
        self._lock = threading.RLock()
        self._running: Optional[Running] = None
        self._channel: Optional[Channel] = None
        self._id = 0
        self._busy = 0

    def interrupt(self) -> None:
        """Sends SIGINT to it."""
        running = self._running
        if running is not None and running.command is not None and running.report is None:
            running.signal(signal.SIGINT)

    def cancel(self) -> None:
        """Interrupts what another thread runs in it, and kills it if that does not help."""
        running, number = self._running, self._id
        self.interrupt()

        def kill() -> None:
            if running is not None and running is self._running and number == self._busy:
                running.kill()

        timer = threading.Timer(_GRACE, kill)
        timer.daemon = True
        timer.start()

    def kill(self) -> None:
        """Ends it."""
        running, channel = self._running, self._channel
        self._running = self._channel = None
        if running is not None:
            running.give_up()
        if channel is not None:
            channel.close()

    def start(self) -> None:
        """Makes sure that it runs."""
        with self._lock:
            if self._channel is None or self._channel.is_stale():
                self.kill()
                self._begin()

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        with Fd(theirs.detach()) as end:
            self._channel = Channel(ours)
            fields = {"argv": [text(word) for word in self._language.argv()], **self._fields}
            try:
                self._running = Running(self._session, fields, end, waits=False)
                end.close()
                deadline = time.monotonic() + self._start_timeout
                ready = self._answer(self._running, self._channel, deadline)
            except BaseException:
                self.kill()
                raise
        if ready is None or "ready" not in ready:
            result = self._end()
            if result is not None:
                raise_for(result)
            raise SetupError(f"{self._language.name} did not start: {self._language.argv()[0]}")

    def run(
        self,
        code: str,
        env: Mapping[str, str],
        timeout: Optional[Time],
        max_output: Optional[int],
        handlers: "Handlers",
    ) -> Execution:
        """Runs code, and returns when it has ended."""
        with self._lock:
            self.start()
            running, channel = self._running, self._channel
            assert running is not None and channel is not None
            self._id += 1
            self._busy = self._id
            execution = Execution(results=[], logs=Logs())
            for output, handler in zip(running.outputs, (handlers.stdout, handlers.stderr)):
                output.begin_anew(max_output, handler)
            try:
                channel.send(self._language.request(self._id, code, env))
                late = self._collect(running, channel, execution, timeout, handlers)
            except KeyboardInterrupt:
                self._stop(running, channel, execution)
                raise
            except BaseException:
                self.kill()  # what it does now is not known
                raise
            finally:
                self._busy = 0
            if late is not None:
                raise late
            self._give_logs(running, execution)
            if execution.error is not None and handlers.error is not None:
                handlers.error(execution.error)
            return execution

    def _collect(
        self,
        running: Running,
        channel: "Channel",
        execution: Execution,
        timeout: Optional[Time],
        handlers: "Handlers",
    ) -> Optional[Timeout]:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                answer = self._answer(running, channel, deadline)
            except TimeoutError:
                return self._too_late(running, channel, execution, timeout)
            if answer is None:
                self._died(execution)
                return None
            result, done = answer_of(answer)
            if result is not None:
                if len(execution.results) >= MOST_RESULTS:
                    raise ProtocolError(f"the code has more than {MOST_RESULTS} results")
                execution.results.append(result)
                if handlers.result is not None:
                    handlers.result(result)
            elif done is not None and done.id == self._id:
                execution.error, execution.execution_count = done.error, done.number
                return None
            else:
                raise ProtocolError(f"the interpreter says what it was not asked: {str(answer)[:200]!r}")

    def _stop(self, running: Running, channel: Channel, execution: Execution) -> bool:
        """Interrupts it, and kills it if it does not answer. Whether it lives on."""
        survived = False
        try:
            self.interrupt()
            until = time.monotonic() + _GRACE
            while not survived:
                answer = self._answer(running, channel, until)
                if answer is None:
                    break
                _, done = answer_of(answer)
                survived = done is not None and done.id == self._id
        except (TimeoutError, Error):
            pass
        self._give_logs(running, execution)
        if not survived:
            self.kill()
        return survived

    def _too_late(self, running: Running, channel: Channel, execution: Execution, timeout: Optional[Time]) -> Timeout:
        survived = self._stop(running, channel, execution)
        stdout, stderr = "".join(execution.logs.stdout), "".join(execution.logs.stderr)
        what = "was interrupted" if survived else "did not end when it was interrupted, and was killed with its variables"
        failed = CommandResult(stdout, stderr, 124, "timeout_wall", error=what)
        return Timeout(f"the code ran longer than {timeout} s; it {what}", failed)

    def _died(self, execution: Execution) -> None:
        """The interpreter ended: `exit()`, a crash, or a limit."""
        running = self._running
        assert running is not None
        result = self._end()
        execution.logs.stdout, execution.logs.stderr = _lines(running, 0), _lines(running, 1)
        if result is not None and result.status not in ("ok", "nonzero", "signaled"):
            raise_for(result)
        said = result.error if result is not None and result.error else "exit code 0"
        execution.error = ExecutionError("InterpreterExit", f"the interpreter ended: {said}", "")

    def _end(self) -> Optional[CommandResult]:
        """Waits for the end of an interpreter that has closed its channel."""
        running, channel = self._running, self._channel
        self._running = self._channel = None
        if channel is not None:
            channel.close()
        if running is None:
            return None
        killer = threading.Timer(_GRACE, running.kill)
        killer.start()
        try:
            return running.wait()
        finally:
            killer.cancel()

    def _answer(self, running: Running, channel: "Channel", deadline: Optional[float]) -> Optional[Dict[str, Any]]:
        """The next answer; `None` if there is none any more. Meanwhile output is read."""
        while True:
            answer = channel.take()
            if answer is not None:
                return answer
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            if not channel.open or running.report is not None:
                return None
            running.turn(channel, left)

    def _give_logs(self, running: Running, execution: Execution) -> None:
        for output in running.outputs:
            output.drain()
            output.flush()
        execution.logs = Logs(_lines(running, 0), _lines(running, 1), *(output.truncated for output in running.outputs))


def _lines(running: Running, number: int) -> List[str]:
    collected = running.outputs[number].text
    return collected.splitlines(keepends=True) if collected else []
