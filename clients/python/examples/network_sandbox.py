"""A network sandbox: a program reaches the hosts and ports that it was given, and every request is in a log."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Dict, List

import stockade

FETCH = """
import sys, urllib.request
for url in sys.argv[1:]:
    try: print(url, urllib.request.urlopen(url, timeout=10).status)
    except OSError as error: print(url, "failed")
"""


def fetch(urls: List[str], allowed: List[str], hosts: Dict[str, str]) -> stockade.CommandResult:
    """Fetches URLs in a sandbox that reaches nothing but the allowed `HOST:PORT`s."""
    return stockade.run(
        ["python3", "-c", FETCH, *urls],
        allow_net=allowed,
        deny_net="*.tracker.example.net",
        add_hosts=hosts,
        net_budget="10M",
        timeout=60,
    )


def summary(log: List[stockade.NetEvent]) -> List[str]:
    """The log in a few lines."""
    connections = [event for event in log if event.event == "connection" and event.rule]
    received = sum(event.bytes_received for event in connections)
    refused = Counter(f"{event.name or event.address} ({event.reason})" for event in log if event.reason)
    lines = [f"{len(connections)} connections, {'some' if received else 'no'} bytes received"]
    return lines + [f"refused: {what}" for what in sorted(refused)]


def main(port: str) -> None:
    local = f"127.0.0.1:{port}"  # a rule for addresses: names may lead to a server of this machine
    result = fetch(
        [f"http://api.example.com:{port}/", "http://elsewhere.example.org/", "http://a.tracker.example.net/"],
        allowed=[f"api.example.com:{port}", local],
        hosts={"api.example.com": "127.0.0.1"},
    )
    print(result.stdout, end="")
    print("\n".join(summary(result.net_log or [])))


if __name__ == "__main__":
    main(sys.argv[1])
