"""However its process ends, no sandbox is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from typing import Optional

import pytest
from conftest import descriptors, eventually, is_alive, supervisor

import stockade

BEGIN = """
import os, signal, sys, threading, time
import stockade
sb = stockade.Sandbox()
background = sb.commands.run("sleep 600", background=True)
sys.stdout.write(str(sb._status()["pid"]) + "\\n")
sys.stdout.flush()
"""

ENDS = {
    "exit": "",
    "sys.exit": "sys.exit(3)",
    "an error": "raise KeyError",
    "os._exit": "os._exit(0)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "a child that lives on": "if os.fork() == 0:\n    os.close(1); os.close(2); time.sleep(4); os._exit(0)",
    "multiprocessing": (
        "import multiprocessing\nmultiprocessing.get_context('fork').Process(target=time.sleep, args=(4,)).start()\nos._exit(0)"
    ),
    "a thread": "threading.Thread(target=lambda: sb.commands.run('sleep 600'), daemon=True).start(); time.sleep(0.3)",
    "a running command": (
        "threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()\nsb.commands.run('sleep 600')"
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left_after(end: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", BEGIN + ENDS[end]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout
    pid = int(child.stdout.readline())
    started = time.monotonic()
    assert eventually(lambda: not is_alive(pid)), end
    assert time.monotonic() - started < 3.5, "while a forked child still lived"
    child.wait()
    child.stdout.close()


@pytest.mark.parametrize("what", ["sb.commands.run('sleep 600')", "stockade.run('sleep 600')", "background.wait()"])
def test_ctrl_c_ends_the_wait_and_leaves_nothing(what: str) -> None:
    script = BEGIN + f"try:\n    {what}\nexcept KeyboardInterrupt:\n    print('interrupted', len(sb.commands.list()))\n"
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout
    pid = int(child.stdout.readline())
    time.sleep(0.5)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does
    out, _ = child.communicate(timeout=20)
    words = out.split()
    assert words[0] == b"interrupted" and int(words[1]) <= 2, out
    assert eventually(lambda: not is_alive(pid))


def test_the_collector_ends_a_sandbox() -> None:
    before = descriptors()
    sandbox: Optional[stockade.Sandbox] = stockade.Sandbox()
    assert sandbox
    pid = supervisor(sandbox)
    sandbox.commands.run(["true"])
    del sandbox
    gc.collect()
    assert eventually(lambda: not is_alive(pid))
    assert eventually(lambda: descriptors() <= before)


def test_kill_waits_for_the_end() -> None:
    before = descriptors()
    sandbox = stockade.Sandbox()
    pid = supervisor(sandbox)
    handle = sandbox.commands.run("trap '' TERM; sleep 600", background=True)
    assert sandbox.kill()
    assert eventually(lambda: not is_alive(pid), 1.0) and not sandbox.kill()
    with pytest.raises(stockade.Error):
        handle.wait()
    del handle, sandbox
    assert eventually(lambda: descriptors() <= before)


def test_a_sandbox_that_is_killed_from_outside_is_noticed() -> None:
    sandbox = stockade.Sandbox()
    handle = sandbox.commands.run("sleep 600", background=True)
    os.kill(supervisor(sandbox), signal.SIGKILL)
    with pytest.raises(stockade.SandboxEnded):
        handle.wait()
    with pytest.raises(stockade.SandboxEnded):
        sandbox.commands.run(["true"])
    assert not sandbox.is_running()
    sandbox.kill()


def test_a_forked_child_does_not_use_it(sb: stockade.Sandbox) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            sb.commands.run(["true"])
        except stockade.Error as error:
            os.write(write, str(error).encode())
        with stockade.Sandbox() as own:
            os.write(write, own.commands.run(["echo", " own"]).stdout.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read) as said:
        text = said.read()
    assert "another process" in text and text.endswith(" own\n")
    assert sb.commands.run(["echo", "on"]).stdout == "on\n"


def test_a_time_ends_it() -> None:
    sandbox = stockade.Sandbox(timeout=0.5)
    pid = supervisor(sandbox)
    assert eventually(lambda: not is_alive(pid))
    assert not sandbox.is_running()
