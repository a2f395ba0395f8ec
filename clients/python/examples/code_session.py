"""A code session: cells that see each other's variables, with results, output, errors and a limit on each."""

from __future__ import annotations

from typing import List

import stockade

CELLS = [
    "import statistics\nprices = [3, 5, 8, 13]",
    "statistics.mean(prices)",
    "print('the dearest is', max(prices))",
    "prices['cheap']",
    "while True: pass",
    "len(prices)  # the loop was interrupted, and the variables are still there",
]


def show(sandbox: stockade.Sandbox, cells: List[str]) -> None:
    for number, cell in enumerate(cells, 1):
        try:
            done = sandbox.run_code(cell, timeout=1)
        except stockade.Timeout as late:
            print(f"[{number}] {late.error}")
            continue
        for line in done.logs.stdout:
            print(f"[{number}] printed: {line.rstrip()}")
        if done.text is not None:
            print(f"[{number}] value: {done.text}")
        if done.error is not None:
            print(f"[{number}] {done.error.name}: {done.error.value}")


def main() -> None:
    with stockade.Sandbox() as sandbox:
        show(sandbox, CELLS)
        shell = sandbox.create_code_context(language="bash", cwd="/tmp")
        sandbox.run_code("greeting=hello", context=shell)
        print("bash:", sandbox.run_code('echo "$greeting from $PWD"', context=shell).logs.stdout[0].rstrip())


if __name__ == "__main__":
    main()
