"""`stockade.run`: one command in a sandbox of its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Dict, Optional, Union

from stockade._options import Command, Options, Time, flags, time_flag, words_of
from stockade._owned import Fd
from stockade._program import program
from stockade._streams import MAX_OUTPUT, Feeder, Output, OutputHandler
from stockade.errors import raise_for, setup_error
from stockade.net import events_of
from stockade.results import CommandResult, Report, result_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


def run(
    cmd: Command,
    *,
    stdin: Union[None, str, bytes] = None,
    timeout: Optional[Time] = None,
    cpu_time: Optional[Time] = None,
    idle_timeout: Optional[Time] = None,
    on_stdout: Optional[OutputHandler] = None,
    on_stderr: Optional[OutputHandler] = None,
    max_output: Optional[int] = MAX_OUTPUT,
    check: bool = True,
    **options: "Unpack[Options]",
) -> CommandResult:
    """Runs a command in a sandbox of its own, and returns when nothing of it is left.

    A string is a line for the shell, a list is words. It raises what `stockade.errors` has unless the command succeeded; with
    `check=False` only if it could not be started. The first `max_output` bytes of each stream are kept.
    """
    words = flags(options)
    for flag, time in (("timeout", timeout), ("cpu-time", cpu_time), ("idle-timeout", idle_timeout)):
        if time is not None:
            words.append(f"--{flag}={time_flag(time, flag)}")
    if stdin is not None:
        words.append("--interactive")
    logs = bool(options.get("allow_net"))
    with _Started(words, words_of(cmd), stdin, on_stdout, on_stderr, max_output, logs) as started:
        result = started.collect()
    if not result.report:
        raise setup_error({}, result.stderr.strip() or f"stockade ended with exit code {result.exit_code}")
    if check or isinstance(result.report.get("error"), dict):
        raise_for(result)
    return result


class _Started:
    """The program, which runs the command. If this process ends, or leaves the context early, it is killed."""

    def __init__(
        self,
        flags: "list[str]",
        words: "list[Union[str, bytes]]",
        stdin: Union[None, str, bytes],
        on_stdout: Optional[OutputHandler],
        on_stderr: Optional[OutputHandler],
        max_output: Optional[int],
        logs: bool,
    ) -> None:
        path = program()
        lease_end, lease = os.pipe()
        self._lease = Fd(lease)
        report, report_end = os.pipe()
        log, log_end = os.pipe()
        given = subprocess.DEVNULL if stdin is None else subprocess.PIPE
        try:
            ours = [
                "--quiet",
                f"--report=fd:{report_end}",
                f"--lease=fd:{lease_end}",
                *([f"--net-log=fd:{log_end}"] if logs else []),
            ]
            self._child = subprocess.Popen(
                [path, "run", *ours, *flags, "--", *words],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[report_end, lease_end, *([log_end] if logs else [])],
            )
        except BaseException:
            self._lease.close()
            os.close(report)
            os.close(log)
            raise
        finally:
            os.close(lease_end)
            os.close(log_end)
            os.close(report_end)
        assert self._child.stdout and self._child.stderr
        pipes = [os.dup(self._child.stdout.fileno()), os.dup(self._child.stderr.fileno())]
        self._child.stdout.close()
        self._child.stderr.close()
        self._out, self._error = Output(pipes[0], max_output, on_stdout), Output(pipes[1], max_output, on_stderr)
        self._report, self._log, self._logs = Output(report, None), Output(log, MAX_OUTPUT), logs
        self._feeder: Optional[Feeder] = None
        if stdin is not None and self._child.stdin is not None:
            fed = os.dup(self._child.stdin.fileno())
            self._child.stdin.close()
            self._feeder = Feeder(fed, stdin.encode() if isinstance(stdin, str) else stdin)

    def collect(self) -> CommandResult:
        outputs: Dict[int, Output] = {one.fd: one for one in (self._out, self._error, self._report, self._log)}
        polled = select.poll()
        for fd in outputs:
            polled.register(fd, select.POLLIN)
        feeder = self._feeder
        if feeder is not None:
            polled.register(feeder.fd, select.POLLOUT)
        while outputs:
            for fd, _ in polled.poll():
                if fd in outputs:
                    outputs[fd].read()
                    if not outputs[fd].open:
                        polled.unregister(fd)
                        del outputs[fd]
                elif feeder is not None:
                    feeder.write()
                    if not feeder.open:
                        polled.unregister(fd)
                        feeder = None
        code = self._child.wait()
        for output in (self._out, self._error):
            output.finish()
        cut = (self._out.truncated, self._error.truncated)
        report = _parsed(self._report.text)
        if not report:
            return CommandResult(self._out.text, self._error.text, code, "setup_error")
        result = result_of(report, self._out.text, self._error.text, cut)
        return replace(result, net_log=events_of(self._log.text.splitlines())) if self._logs else result

    def __enter__(self) -> "_Started":
        return self

    def __exit__(self, *_: object) -> None:
        self._lease.close()
        if self._feeder is not None:
            self._feeder.close()
        for output in (self._out, self._error, self._report, self._log):
            output.close()
        self._child.wait()


def _parsed(text: str) -> Report:
    try:
        report = json.loads(text)
    except ValueError:
        return {}
    return report if isinstance(report, dict) else {}
