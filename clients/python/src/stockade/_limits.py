"""How much an agent may do in a sandbox."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Deque, Optional

from stockade.errors import RateLimit


class Calls:
    """Counts the calls on a sandbox: commands, code and file operations."""

    def __init__(self, most: Optional[int], per_minute: Optional[int]) -> None:
        self.most = most
        self.per_minute = per_minute
        self.count = 0
        self._recent: Deque[float] = deque()
        self._lock = threading.Lock()

    def take(self) -> None:
        """Allows one call, or raises `RateLimit`."""
        if self.most is None and self.per_minute is None:
            self.count += 1
            return
        with self._lock:
            if self.most is not None and self.count >= self.most:
                raise RateLimit(f"the sandbox allows {self.most} calls, and all were made")
            if self.per_minute is not None:
                now = time.monotonic()
                while self._recent and self._recent[0] <= now - 60:
                    self._recent.popleft()
                if len(self._recent) >= self.per_minute:
                    left = 60 - (now - self._recent[0])
                    raise RateLimit(f"the sandbox allows {self.per_minute} calls a minute; the next one in {left:.0f} s")
                self._recent.append(now)
            self.count += 1
