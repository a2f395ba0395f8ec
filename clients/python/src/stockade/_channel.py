"""Our end of an interpreter's standard input, which is a socket: requests go in, lines of JSON come back.

Whatever runs inside can write anything to it, so every line is bounded and parsed totally.
"""

from __future__ import annotations

import json
import os
import select
import socket
from typing import Any, Dict, Optional

from stockade._owned import Fd
from stockade.errors import ProtocolError

MAX_ANSWER = 32 << 20
"""The longest answer of an interpreter, in bytes: a value or a picture."""


class Channel:
    """Our end of an interpreter's standard input."""

    def __init__(self, ours: socket.socket) -> None:
        ours.setblocking(False)
        self._fd = Fd(ours.detach())
        self._buffer = bytearray()
        self._seen = 0
        self._out = memoryview(b"")
        self.open = True

    @property
    def fd(self) -> int:
        return self._fd.number

    @property
    def wants(self) -> int:
        return select.POLLIN | (select.POLLOUT if self._out else 0)

    def is_stale(self) -> bool:
        """Whether it ended, or something came that nobody asked for."""
        self.turn()
        return not self.open or bool(self._buffer)

    def send(self, request: bytes) -> None:
        self._out = memoryview(request)
        self._write()

    def turn(self) -> None:
        """Writes and reads what is possible now."""
        if not self.open:
            return
        self._write()
        self._read()

    def _write(self) -> None:
        try:
            while self._out:
                self._out = self._out[os.write(self.fd, self._out) :]
        except BlockingIOError:
            pass
        except OSError:
            self._out = memoryview(b"")

    def _read(self) -> None:
        try:
            piece = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self.open = False
        self._buffer += piece

    def take(self) -> Optional[Dict[str, Any]]:
        """The next answer, if it is there."""
        end = self._buffer.find(b"\n", self._seen)
        if end < 0:
            self._seen = len(self._buffer)
            if self._seen > MAX_ANSWER:
                raise ProtocolError(f"the interpreter's answer is longer than {MAX_ANSWER} bytes")
            return None
        line, self._seen = bytes(self._buffer[:end]), 0
        del self._buffer[: end + 1]
        try:
            answer = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"the interpreter's answer is not JSON: {error}") from None
        if not isinstance(answer, dict):
            raise ProtocolError("the interpreter's answer is not an object")
        return answer

    def close(self) -> None:
        self.open = False
        self._fd.close()
