from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any, List

import pytest
from conftest import descriptors, eventually

import stockade


def test_commands_share_a_sandbox(sb: stockade.Sandbox) -> None:
    assert sb.commands.run("echo data > /tmp/file; pwd").stdout == "/home/sandbox\n"
    result = sb.commands.run(["cat", "/tmp/file", "/tmp/other"], check=False)
    assert result.stdout == "data\n" and "/tmp/other" in result.stderr and result.exit_code == 1
    assert result.usage.cpu_us is not None and result.report["schema"] == "stockade/report/v1"
    assert sb.commands.run("echo $A $B", envs={"A": "1", "B": "x y"}).stdout == "1 x y\n"
    assert sb.commands.run(["pwd"], cwd="/tmp", umask=0o77).stdout == "/tmp\n"
    assert sb.commands.run(["printf", "%s", b"\xff"]).stdout == "\ufffd"


def test_input_is_fed(sb: stockade.Sandbox) -> None:
    large = "x" * 3_000_000
    assert sb.commands.run(["wc", "-c"], stdin=large).stdout.strip() == "3000000"
    assert sb.commands.run(["cat"], stdin=b"bytes").stdout == "bytes"
    assert sb.commands.run(["head", "-c", "3"], stdin=large).stdout == "xxx"
    assert sb.commands.run(["cat"]).stdout == ""
    assert sb.commands.run(["sh", "-c", "echo $#", "sh", *["y" * 100] * 1000]).stdout == "1000\n"


def test_failures_raise_and_the_sandbox_goes_on(sb: stockade.Sandbox) -> None:
    with pytest.raises(stockade.CommandFailed) as failed:
        sb.commands.run("echo out; exit 5")
    assert (failed.value.exit_code, failed.value.stdout) == (5, "out\n")
    with pytest.raises(stockade.Timeout):
        sb.commands.run("sleep 60", timeout=0.2)
    with pytest.raises(stockade.Timeout):
        sb.commands.run("while :; do :; done", cpu_time=0.2)
    with pytest.raises(stockade.Timeout):
        sb.commands.run("sleep 60", idle_timeout=0.2)
    with pytest.raises(stockade.SetupError, match="no-such"):
        sb.commands.run(["no-such"])
    with pytest.raises(stockade.CommandFailed, match="signaled"):
        sb.commands.run("kill -9 $$")
    with pytest.raises(stockade.Denied, match="unshare"):
        sb.commands.run(["unshare", "-r", "true"], explain_denials=True)
    with pytest.raises(stockade.Error, match="cwd"):
        sb.commands.run(["true"], cwd="relative")
    assert sb.commands.run("exit 6", check=False).exit_code == 6
    assert sb.commands.run(["echo", "on"]).stdout == "on\n"


def test_output_is_bounded_and_streamed(sb: stockade.Sandbox) -> None:
    result = sb.commands.run("head -c 5000000 /dev/zero | tr '\\0' x", max_output=10)
    assert result.stdout == "x" * 10 and result.stdout_truncated and not result.stderr_truncated
    pieces: list[str] = []
    sb.commands.run("echo a; sleep 0.1; echo b", on_stdout=pieces.append)
    assert "".join(pieces) == "a\nb\n" and len(pieces) == 2


def test_the_background(sb: stockade.Sandbox) -> None:
    handle = sb.commands.run("read a; echo got $a; cat; exit 4", background=True, stdin=True)
    assert handle.pid > 1 and handle.exit_code is None
    assert [one.pid for one in sb.commands.list()] == [handle.pid]
    handle.send_stdin("one\n")
    assert eventually(lambda: handle.stdout == "got one\n")
    sb.commands.send_stdin(handle.pid, b"two")
    with pytest.raises(TimeoutError):
        handle.wait(0.1)
    handle.close_stdin()
    with pytest.raises(stockade.CommandFailed) as failed:
        handle.wait()
    assert failed.value.exit_code == 4 and failed.value.stdout == "got one\ntwo"
    assert handle.exit_code == 4 and not handle.kill() and sb.commands.list() == []


def test_the_background_is_killed_and_signalled(sb: stockade.Sandbox) -> None:
    sleeper = sb.commands.run("sleep 600 & sleep 600", background=True, check=False)
    assert sleeper.kill()
    assert sleeper.wait().status == "killed_by_user"
    polite = sb.commands.run("trap 'echo bye; exit 0' INT; echo up; while :; do sleep 0.01; done", background=True)
    assert eventually(lambda: polite.stdout == "up\n")
    assert polite.interrupt()
    assert polite.wait().stdout == "up\nbye\n"
    other = sb.commands.run(["sleep", "600"], background=True, check=False)
    assert other.signal(signal.SIGTERM) and other.wait().exit_code == 143
    last = sb.commands.run(["sleep", "600"], background=True, check=False)
    assert sb.commands.kill(last.pid) and not sb.commands.kill(1)
    assert last.wait().exit_code == 137
    with pytest.raises(stockade.SetupError):
        sb.commands.run(["no-such"], background=True).wait()


def test_many_commands_at_once(sb: stockade.Sandbox) -> None:
    handles = [sb.commands.run(f"sleep 0.1; echo {number}", background=True) for number in range(60)]
    assert [handle.wait().stdout for handle in handles] == [f"{number}\n" for number in range(60)]
    outputs: dict[int, str] = {}

    def one(number: int) -> None:
        outputs[number] = sb.commands.run(["echo", str(number)]).stdout

    before = descriptors()
    threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {number: f"{number}\n" for number in range(20)}
    assert descriptors() <= before + 8


def test_a_pipe_that_another_command_holds_is_not_waited_for(sb: stockade.Sandbox) -> None:
    # A process of another command opens the standard output of this one, and keeps it.
    sleeper = sb.commands.run(["sleep", "600"], background=True)
    script = "import os,time,sys; os.write(1, b'x'); time.sleep(0.5)"
    holder = (
        "import os, time, glob\n"
        "while True:\n"
        "    for exe in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "        try: mine = b'0.5' in open(exe, 'rb').read() and exe.split('/')[2] != str(os.getpid())\n"
        "        except OSError: continue\n"
        "        if mine:\n"
        "            try: fd = os.open(exe.replace('cmdline', 'fd/1'), os.O_WRONLY)\n"
        "            except OSError: continue\n"
        "            print('held', flush=True); time.sleep(600)\n"
    )
    holding = sb.commands.run(["python3", "-c", holder], background=True, check=False)
    started = time.monotonic()
    assert sb.commands.run(["python3", "-c", script]).stdout == "x"
    assert time.monotonic() - started < 60
    assert holding.kill() and sleeper.kill()


def test_calls_are_limited() -> None:
    with stockade.Sandbox(max_calls=2) as sandbox:
        sandbox.commands.run(["true"])
        sandbox.commands.run(["true"])
        with pytest.raises(stockade.RateLimit, match="2 calls"):
            sandbox.commands.run(["true"])
        assert sandbox.stats().calls == 2
    with stockade.Sandbox(calls_per_minute=1) as sandbox:
        sandbox.commands.run(["true"])
        with pytest.raises(stockade.RateLimitException, match="a minute"):
            sandbox.commands.run(["true"])


def test_every_kind_of_call_counts_whatever_thread_makes_it() -> None:
    with stockade.Sandbox(max_calls=4) as sandbox:
        sandbox.files.write("a", "x")
        sandbox.run_code("1", language="bash")
        refused: List[stockade.RateLimit] = []

        def call() -> None:
            try:
                sandbox.files.read("a")
            except stockade.RateLimit as error:
                refused.append(error)

        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (sandbox.stats().calls, len(refused)) == (4, 6)


def test_a_minute_later_calls_are_allowed_again(monkeypatch: Any) -> None:
    with stockade.Sandbox(calls_per_minute=2) as sandbox:
        now = time.monotonic()
        for later, allowed in ((0, True), (30, True), (59, False), (61, True), (62, False), (91, True), (92, False)):
            monkeypatch.setattr("stockade._limits.time.monotonic", lambda later=later: now + 1 + later)
            if allowed:
                sandbox.files.exists("/")
            else:
                with pytest.raises(stockade.RateLimit, match=r"in \d+ s"):
                    sandbox.files.exists("/")
            monkeypatch.undo()


def test_stats_plan_and_names() -> None:
    name = f"test-{os.getpid()}"
    with stockade.Sandbox(name=name, timeout=60, idle_stop=60, hostname="inside") as sandbox:
        assert sandbox.sandbox_id == name and sandbox.is_running()
        sandbox.commands.run(["true"])
        stats = sandbox.stats()
        assert (stats.running, stats.ended, stats.paused) == (0, 1, False) and stats.usage.cpu_us is not None
        assert sandbox.plan()["hostname"] == "inside"
        other = stockade.Sandbox.connect(name)
        assert other.commands.run(["hostname"]).stdout == "inside\n"
        with pytest.raises(stockade.SetupError):
            stockade.Sandbox(name=name)
    assert not other.is_running() and repr(sandbox).endswith("ended>")
    assert sandbox.report and sandbox.report["status"] == "ok"
    with pytest.raises(stockade.SandboxEnded):
        sandbox.commands.run(["true"])
    with pytest.raises(stockade.NotFound):
        stockade.Sandbox.connect(name)
    with pytest.raises(stockade.InvalidArgument):
        stockade.Sandbox.connect("../x")
