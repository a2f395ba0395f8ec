"""What a sandbox did in the network: the lines of the network log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Optional


@dataclass(frozen=True)
class NetEvent:
    """A connection, or a name or connection that was refused."""

    time: str
    event: str
    result: str
    name: Optional[str] = None
    address: Optional[str] = None
    port: Optional[int] = None
    rule: Optional[str] = None
    reason: Optional[str] = None
    server_name: Optional[str] = None
    command: Optional[str] = None
    bytes_sent: int = 0
    bytes_received: int = 0
    duration_us: int = 0


_TEXTS = ("name", "address", "rule", "reason", "server_name", "command")
_NUMBERS = ("bytes_sent", "bytes_received", "duration_us")


def _event(line: Any) -> Optional[NetEvent]:
    try:
        table = json.loads(line)
    except ValueError:
        return None
    if not isinstance(table, dict):
        return None
    fields: Dict[str, Any] = {name: str(table.get(name)) for name in ("time", "event", "result")}
    fields.update((name, table[name]) for name in _TEXTS if isinstance(table.get(name), str))
    fields.update((name, table[name]) for name in _NUMBERS if isinstance(table.get(name), int))
    return NetEvent(port=table["port"] if isinstance(table.get("port"), int) else None, **fields)


def events_of(lines: Iterable[str]) -> List[NetEvent]:
    """Reads lines of a network log."""
    return [event for event in map(_event, lines) if event is not None]
