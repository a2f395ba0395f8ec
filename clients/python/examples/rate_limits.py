"""Rate limits: an agent has a number of calls, a number of calls a minute, and bounded output and time for each."""

from __future__ import annotations

import stockade


def main() -> None:
    with stockade.Sandbox(max_calls=5, calls_per_minute=100) as sb:
        for attempt in range(1, 8):
            try:
                result = sb.commands.run("yes | head -c 1000000", max_output=1000, timeout=5)
            except stockade.RateLimit as limit:
                print(f"call {attempt}: {limit}")
                break
            cut = "cut" if result.stdout_truncated else "whole"
            print(f"call {attempt}: {len(result.stdout)} bytes, {cut}")
        print("calls made:", sb.stats().calls)
    with stockade.Sandbox(calls_per_minute=2) as sb:
        sb.run_code("1")
        sb.run_code("2")
        try:
            sb.run_code("3")
        except stockade.RateLimit as limit:
            print(str(limit).partition(";")[0])


if __name__ == "__main__":
    main()
