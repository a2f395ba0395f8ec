"""`Pool`: sandboxes that are made before they are needed."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Deque, Optional, Type

from stockade._options import SandboxOptions, Time
from stockade.errors import Error, SetupError
from stockade.sandbox import Sandbox

if TYPE_CHECKING:
    from typing_extensions import Unpack


_HEAD_START = 0.005
"""How long whoever took a sandbox has the processor before another one is made, in seconds."""


class Pool:
    """Keeps `size` sandboxes ready, each with an interpreter that has run `setup`. The keywords are those of `Sandbox`.

    A sandbox is given out once. It belongs to whoever took it, and another one is made in its place.
    """

    def __init__(
        self, size: int = 4, setup: Optional[str] = None, *, language: str = "python", **options: "Unpack[SandboxOptions]"
    ) -> None:
        self._shelf = _Shelf(size, setup, language, options)
        threading.Thread(target=self._shelf.fill, name="stockade-pool", daemon=True).start()
        self._finalizer = weakref.finalize(self, self._shelf.close)

    def acquire(self, timeout: Optional[Time] = None) -> Sandbox:
        """A fresh sandbox; use it with `with`. Waits until there is one."""
        return self._shelf.take(timeout)

    def ready(self) -> int:
        """How many sandboxes wait."""
        return len(self._shelf.waiting)

    def close(self) -> None:
        """Ends the sandboxes that nobody has taken."""
        self._shelf.close()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        self.close()


class _Shelf:
    """The sandboxes of a pool. The thread that fills it does not keep the pool alive."""

    def __init__(self, size: int, setup: Optional[str], language: str, options: SandboxOptions) -> None:
        self.size = size
        self.setup = setup
        self.language = language
        self.options = options
        self.waiting: Deque[Sandbox] = deque()
        self.changed = threading.Condition()
        self.closed = False
        self.failure: Optional[Error] = None
        self.was_taken = False
        self.pid = os.getpid()

    def fill(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.closed or (len(self.waiting) < self.size and self.failure is None))
                if self.closed:
                    return
                can_wait, self.was_taken = self.was_taken and len(self.waiting) > 0, False
            if can_wait:
                time.sleep(_HEAD_START)
            sandbox = failure = None
            try:
                sandbox = self.make()
            except Error as error:
                failure = error
            except Exception as error:
                failure = Error(f"a sandbox of the pool cannot be made: {error!r}")
            with self.changed:
                self.failure = failure
                if sandbox is not None and not self.closed:
                    self.waiting.append(sandbox)
                    sandbox = None
                self.changed.notify_all()
            if sandbox is not None:
                sandbox.kill()

    def make(self) -> Sandbox:
        sandbox = Sandbox(**self.options)
        try:
            if self.setup is not None:
                done = sandbox._code.prepare(self.setup, self.language)
                if done.error is not None:
                    raise SetupError(
                        f"the pool's setup failed: {done.error.name}: {done.error.value}", hint=done.error.traceback
                    )
        except BaseException:
            sandbox.kill()
            raise
        return sandbox

    def take(self, timeout: Optional[Time]) -> Sandbox:
        if self.pid != os.getpid():
            raise Error("this pool belongs to another process", hint="make one of its own after the fork")
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            with self.changed:
                left = None if until is None else until - time.monotonic()
                if not self.changed.wait_for(lambda: self.closed or self.waiting or self.failure, left):
                    raise TimeoutError(f"no sandbox was ready within {timeout} s")
                if self.closed:
                    raise Error("the pool is closed")
                if not self.waiting:
                    failure, self.failure = self.failure, None  # the next one tries again
                    self.changed.notify_all()
                    assert failure is not None
                    raise failure
                sandbox, self.was_taken = self.waiting.popleft(), True
                self.changed.notify_all()
            if sandbox._session.is_held():
                return sandbox
            sandbox.kill()

    def close(self) -> None:
        if self.pid != os.getpid():
            return
        with self.changed:
            self.closed = True
            left = list(self.waiting)
            self.waiting.clear()
            self.changed.notify_all()
        for sandbox in left:
            sandbox.kill()
