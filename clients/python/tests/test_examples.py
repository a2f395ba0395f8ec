"""The example programs do what they say, and none is longer than a page."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, List

import pytest
from test_net import server

EXAMPLES = Path(__file__).parent.parent / "examples"
SAID = {
    "process_sandbox": [
        "a sum            ok           6",
        "an endless loop  timeout_",
        "File too large",
        "Too many open files",
    ],
    "container_sandbox": [
        "write to the root          refused",
        "write to what is mounted   refused",
        "write to the tmpfs         works",
        "fill the tmpfs             refused",
        "reach the network          refused",
        "see the host's processes   refused",
        "keep a capability          refused",
        "gain a privilege           refused",
        "nothing is left of it",
    ],
    "code_session": [
        "value: 7.25",
        "printed: the dearest is 13",
        "TypeError",
        "was interrupted",
        "[6] value: 4",
        "hello from /tmp",
    ],
    "manager": ["secret", "bob sees nothing", "ann: 1 commands, 0 running", "ended: bob"],
    "tool_allowlist": [
        "['1', '9', '10']",
        "refused: rm is not",
        "refused: sort does not take",
        "from Python: Permission denied",
    ],
    "rate_limits": ["call 5: 1000 bytes, cut", "call 6: the sandbox allows 5 calls", "allows 2 calls a minute"],
    "audit_trail": ["runs in the audit log: 3", "verified: True True", "after a change: False"],
    "agent_loop": [
        "answer: the sum of squares is 30",
        "python: 30",
        "No such file",
        "was interrupted",
        "there is no tool browser",
    ],
    "network_sandbox": [
        "/ 200",
        "elsewhere.example.org/ failed",
        "1 connections, some bytes received",
        "refused: elsewhere.example.org",
    ],
    "file_sandbox": ["'good.txt'", "refused: /proc/1/root/etc/shadow", "quota:", "No space left", "files: refused"],
    "cluster": ["60 jobs, 60 reports"],
}
_ = server  # a fixture


def run(name: str, *words: str) -> str:
    command: List[str] = [sys.executable, str(EXAMPLES / f"{name}.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", sorted(set(SAID) - {"audit_trail", "cluster", "network_sandbox"}))
def test_the_example(name: str) -> None:
    printed = run(name)
    for line in SAID[name]:
        assert line in printed, printed


def test_the_example_of_the_audit_trail(tmp_path: Path) -> None:
    printed = run("audit_trail", str(tmp_path))
    assert printed.splitlines() == SAID["audit_trail"]


def test_the_example_of_the_network(server: int) -> None:
    printed = run("network_sandbox", str(server))
    for line in SAID["network_sandbox"]:
        assert line in printed, printed


@pytest.mark.parametrize("by", ["distributed", "ray"])
def test_the_example_of_the_cluster(by: str, monkeypatch: Any) -> None:
    pytest.importorskip(by)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # The paths of Ray's sockets must be short.
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as place:
        monkeypatch.setenv("RAY_TMPDIR", place)
        try:
            printed = run("cluster", by.replace("distributed", "dask"), "60")
        except AssertionError as error:
            if "The current node timed out during startup" in str(error):
                pytest.skip("Ray gives itself 30 s to start, and the machine was too busy")
            raise
    assert SAID["cluster"][0] in printed


def test_every_example_is_a_page_and_is_tested() -> None:
    found = {path.stem: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert set(found) == set(SAID)
    assert all(lines <= 60 for lines in found.values()), found
