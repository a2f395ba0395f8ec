"""A tool allow-list: an agent names a tool and its words, and only listed tools run, each with limits of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Pattern

import stockade


@dataclass(frozen=True)
class Tool:
    """A program and what its words may look like."""

    program: str
    word: Pattern[str]
    timeout_s: float = 5.0
    most_words: int = 4


TOOLS: Dict[str, Tool] = {
    "sort": Tool("/usr/bin/sort", re.compile(r"-[nru]|[\w./]+")),
    "count": Tool("/usr/bin/wc", re.compile(r"-[lwc]|[\w./]+")),
    "python": Tool("/usr/bin/python3", re.compile(r"(?s).*"), timeout_s=2.0, most_words=2),
}


class Refused(Exception):
    """A call that no tool allows."""


def call(sandbox: stockade.Sandbox, name: str, words: List[str], stdin: str = "") -> str:
    """Calls a tool. The words are never a shell's."""
    tool = TOOLS.get(name)
    if tool is None:
        raise Refused(f"{name} is not one of {', '.join(TOOLS)}")
    if len(words) > tool.most_words or not all(tool.word.fullmatch(word) for word in words):
        raise Refused(f"{name} does not take {words}")
    return sandbox.commands.run([tool.program, *words], stdin=stdin, timeout=tool.timeout_s, check=False).stdout


def main() -> None:
    # Landlock: nothing but these can be executed, whatever a tool is talked into.
    programs = ["/usr/bin/sort", "/usr/bin/wc", "/usr/bin/python3", "/usr/lib:optional", "/lib64:optional"]
    with stockade.Sandbox(allow_exec=programs, network="none") as sb:
        print(call(sb, "sort", ["-n"], "10\n9\n1\n").split())
        for name, words in [("rm", ["-rf", "/"]), ("sort", ["--compress-program=sh"])]:
            try:
                call(sb, name, words)
            except Refused as refusal:
                print("refused:", refusal)
        shell = "import subprocess\ntry: subprocess.run(['/bin/sh'])\nexcept OSError as error: print(error.strerror)"
        print("a shell from Python:", call(sb, "python", ["-c", shell]).strip())


if __name__ == "__main__":
    main()
