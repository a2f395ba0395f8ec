"""A manager of sandboxes: creates, executes, monitors, and cleans up those that are idle, too old or too hungry."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Dict, List

import stockade


@dataclass
class Managed:
    sandbox: stockade.Sandbox
    made_at: float = field(default_factory=time.monotonic)
    used_at: float = field(default_factory=time.monotonic)


class Manager:
    """Sandboxes by the names of their users."""

    def __init__(self, most: int = 10, idle_s: float = 600, cpu_us: int = 60_000_000) -> None:
        self.most, self.idle_s, self.cpu_us = most, idle_s, cpu_us
        self._managed: Dict[str, Managed] = {}

    def execute(self, user: str, command: str) -> stockade.CommandResult:
        """Runs a command in a user's sandbox, which is made if there is none."""
        managed = self._managed.get(user)
        if managed is None:
            if len(self._managed) >= self.most:
                raise stockade.RateLimit(f"there are {self.most} sandboxes already")
            managed = self._managed[user] = Managed(stockade.Sandbox(timeout=3600, scratch_size="64M"))
        managed.used_at = time.monotonic()
        return managed.sandbox.commands.run(command, timeout=30, check=False)

    def monitor(self) -> List[str]:
        """A line for each sandbox."""
        lines = []
        for user, managed in self._managed.items():
            stats = managed.sandbox.stats()
            lines.append(f"{user}: {stats.ended} commands, {stats.running} running")
        return lines

    def clean_up(self) -> List[str]:
        """Ends those that nobody should keep, and tells whose."""
        now, ended = time.monotonic(), []
        for user, managed in list(self._managed.items()):
            hungry = managed.sandbox.is_running() and (managed.sandbox.stats().usage.cpu_us or 0) > self.cpu_us
            if hungry or now - managed.used_at > self.idle_s or not managed.sandbox.is_running():
                self._managed.pop(user).sandbox.kill()
                ended.append(user)
        return ended


if __name__ == "__main__":
    manager = Manager(most=2, cpu_us=100_000)
    print(manager.execute("ann", "echo secret > ~/note; cat ~/note").stdout, end="")
    print("bob sees", manager.execute("bob", "cat ~/note; python3 -c 'sum(range(40_000_000))'").stdout or "nothing")
    print(*manager.monitor(), sep="\n")
    print("ended:", *manager.clean_up())
