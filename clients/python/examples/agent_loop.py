"""An agent loop: a model asks for tools, the sandbox does what its policy allows, and every call is in the trail."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List

import stockade

Step = Dict[str, Any]


def scripted_model() -> Iterator[Step]:
    """Stands for a model: what it asks for depends on nothing here. A real one would read the observations."""
    yield {"tool": "python", "input": "import json; rows = [{'n': n, 'square': n * n} for n in range(5)]"}
    yield {"tool": "python", "input": "sum(row['square'] for row in rows)"}
    yield {"tool": "shell", "input": "cat /etc/shadow"}
    yield {"tool": "python", "input": "while True: pass"}
    yield {"tool": "browser", "input": "https://example.com"}
    yield {"tool": "python", "input": "len(rows)"}
    yield {"answer": "the sum of squares is 30"}


class Agent:
    """Tools over one sandbox, with a trail of what they were asked and what they said."""

    def __init__(self, sandbox: stockade.Sandbox) -> None:
        self.sandbox = sandbox
        self.trail: List[str] = []
        self.tools: Dict[str, Callable[[str], str]] = {"python": self.python, "shell": self.shell}

    def python(self, code: str) -> str:
        done = self.sandbox.run_code(code, timeout=1)
        return f"{done.error.name}: {done.error.value}" if done.error else done.text or "".join(done.logs.stdout) or "done"

    def shell(self, line: str) -> str:
        result = self.sandbox.commands.run(line, timeout=5, max_output=2000, check=False)
        return (result.stdout + result.stderr).strip() or f"exit code {result.exit_code}"

    def run(self, model: Iterator[Step]) -> str:
        for step in model:
            if "answer" in step:
                return str(step["answer"])
            try:
                tool = self.tools.get(step["tool"])
                said = tool(step["input"]) if tool else f"there is no tool {step['tool']}"
            except stockade.RateLimit:
                return "gave up: too many calls"
            except stockade.Error as error:
                said = f"{type(error).__name__}: {error.message}"
            self.trail.append(f"{step['tool']}: {said.splitlines()[0]}")
        return "gave up"


if __name__ == "__main__":
    with stockade.Pool(size=1, setup="import math", network="none", max_calls=50) as pool, pool.acquire() as box:
        agent = Agent(box)
        print("answer:", agent.run(scripted_model()))
        print(*agent.trail, sep="\n")
