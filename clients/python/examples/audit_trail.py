"""An audit trail: every sandbox has a line in a chained log, every command an entry with hash, time and verdict."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import stockade
from stockade._program import program


class Trail:
    """Entries that each contain the hash of the one before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last = "0" * 64

    def add(self, result: stockade.CommandResult, command: List[str]) -> None:
        entry: Dict[str, Any] = {
            "previous": self._last,
            "command": command,
            "status": result.status,
            "exit_code": result.exit_code,
            "started_at": result.report["started_at"],
            "output_sha256": hashlib.sha256(result.stdout.encode()).hexdigest(),
        }
        line = json.dumps(entry, sort_keys=True)
        self._last = hashlib.sha256(line.encode()).hexdigest()
        with self.path.open("a") as file:
            file.write(line + "\n")

    def verify(self) -> bool:
        previous = "0" * 64
        for line in self.path.read_text().splitlines():
            if json.loads(line)["previous"] != previous:
                return False
            previous = hashlib.sha256(line.encode()).hexdigest()
        return previous == self._last


if __name__ == "__main__":
    place = Path(sys.argv[1])
    trail, log = Trail(place / "trail.jsonl"), place / "audit.log"
    for words in (["echo", "hello"], ["false"], ["sh", "-c", "kill -9 $$"]):
        trail.add(stockade.run(words, audit=log, check=False), words)  # the program's own log is a chain as well
    print("runs in the audit log:", len(log.read_text().splitlines()))
    print("verified:", trail.verify(), subprocess.run([program(), "audit", "verify", log], capture_output=True).returncode == 0)
    trail.path.write_text(trail.path.read_text().replace('"exit_code": 1,', '"exit_code": 0,'))
    print("after a change:", trail.verify())
