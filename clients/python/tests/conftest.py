"""Real sandboxes, by the program that STOCKADE_PROGRAM names or that is installed with the package."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, List

import pytest

import stockade

# A shell starts background jobs with SIGINT ignored, and so would the programs of these tests.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """The longest ones begin first, so that no process works on one alone at the end. Each process gets two to begin with."""
    longest = ("distributed]", "papermill", "ray]", "notebook", "kernel", "pictures", "smolagents", "langchain", "test_mcp")
    items.sort(key=lambda item: next((place for place, word in enumerate(longest) if word in item.nodeid), len(longest)))


@pytest.fixture
def sb() -> Iterator[stockade.Sandbox]:
    with stockade.Sandbox() as sandbox:
        yield sandbox


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def supervisor(sandbox: stockade.Sandbox) -> int:
    """The process that is gone when nothing is left of a sandbox."""
    return int(sandbox._status()["pid"])


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def pictures() -> Any:
    """The options of a sandbox that sees the packages of this Python."""
    roots = sorted({sys.prefix, sys.base_prefix} - {"/usr"})
    return {"ro": roots, "interpreters": {"python": [sys.executable]}, "args": ["--follow"]}
