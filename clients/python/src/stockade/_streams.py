"""A command's streams on our side: bounded output, and input that is fed without blocking."""

from __future__ import annotations

import codecs
import errno
import os
from typing import Callable, List, Optional

MAX_OUTPUT = 8 << 20
"""How much of each output stream is kept by default, in bytes."""

_PIECE = 1 << 16
OutputHandler = Callable[[str], object]


class _End:
    """Our end of a stream, which is used without blocking."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.open = True
        os.set_blocking(fd, False)

    def close(self) -> None:
        if self.open:
            self.open = False
            os.close(self.fd)

    def __del__(self) -> None:
        self.close()


class Output(_End):
    """The read end of a command's output. The first `limit` bytes are kept; the rest is read and dropped."""

    def __init__(self, fd: int, limit: Optional[int], handler: Optional[OutputHandler] = None) -> None:
        super().__init__(fd)
        self.limit = limit
        self.handler = handler
        self.kept: List[bytes] = []
        self.size = 0
        self.truncated = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> bool:
        """Reads a piece if there is one. Returns whether there may be more now."""
        if not self.open:
            return False
        try:
            piece = os.read(self.fd, _PIECE)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            piece = b""  # the end of a terminal
        if not piece:
            self.close()
            return False
        room = len(piece) if self.limit is None else min(len(piece), self.limit - self.size)
        if room < len(piece):
            self.truncated = True
            piece = piece[:room]
        if piece:
            self.size += room
            self.kept.append(piece)
            if self.handler is not None:
                self._hand(self._decoder.decode(piece))
        return True

    def _hand(self, text: str) -> None:
        if text and self.handler is not None:
            self.handler(text)

    def drain(self) -> None:
        """Reads what is there. For a command that is over: whoever else has the pipe is not waited for."""
        # A pipe holds at most 1 MiB, so more than that comes from a process that still writes.
        for _ in range(64):
            if not self.read():
                break

    def begin_anew(self, limit: Optional[int], handler: Optional[OutputHandler]) -> None:
        """Forgets what came so far."""
        self.drain()
        self.kept, self.size, self.truncated = [], 0, False
        self.limit, self.handler = limit, handler
        self._decoder.reset()

    def flush(self) -> None:
        """Hands on an incomplete character."""
        self._hand(self._decoder.decode(b"", True))

    def finish(self) -> None:
        """Closes it: there is nothing more to come."""
        self.close()
        self.flush()

    @property
    def text(self) -> str:
        """What was kept. Bytes that are not UTF-8 are replaced."""
        return b"".join(self.kept).decode("utf-8", "replace")


class Feeder(_End):
    """The write end of a command's input."""

    def __init__(self, fd: int, data: bytes) -> None:
        super().__init__(fd)
        self._rest = memoryview(data)

    def write(self) -> None:
        """Writes what there is room for. At the end, or if nobody reads any more, it is closed."""
        while self.open:
            try:
                self._rest = self._rest[os.write(self.fd, self._rest[:_PIECE]) :] if self._rest else self._rest
            except BlockingIOError:
                return
            except BrokenPipeError:
                self.close()
            if not self._rest:
                self.close()
