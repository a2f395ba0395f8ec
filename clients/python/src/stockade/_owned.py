"""What this process alone owns: a forked child closes its copies, so that the end of this process is noticed."""

from __future__ import annotations

import os
import weakref
from typing import Any

_owned: "weakref.WeakSet[Owned]" = weakref.WeakSet()


class Owned:
    """Something with descriptors, which a forked child must not keep open."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        _owned.add(self)

    def close_in_child(self) -> None:
        """Closes the descriptors."""
        raise NotImplementedError


class Fd(Owned):
    """A descriptor. It is closed when nothing refers to it any more."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def close(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    close_in_child = close

    def __enter__(self) -> "Fd":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _after_fork() -> None:
    for owned in list(_owned):
        owned.close_in_child()


os.register_at_fork(after_in_child=_after_fork)
