"""The programs that run inside as interpreters, and how each is asked."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import List, Mapping, Optional, Sequence

from stockade.errors import InvalidArgument

LANGUAGES = {
    "python": (["python3"], ["-c"], "python.py"),
    "node": (["node"], ["-e"], "node.js"),
    "bash": (["bash"], ["-c"], "bash.sh"),
}
_encode = json.JSONEncoder(check_circular=False).encode


@cache
def _source(file: str) -> str:
    return (Path(__file__).parent / "_drivers" / file).read_text()


class Language:
    """A language, and the program that interprets it."""

    def __init__(self, name: str, program: Optional[Sequence[str]] = None) -> None:
        self.name = name
        self._program = program

    def argv(self) -> List[str]:
        """The command of its interpreter."""
        program, flags, file = LANGUAGES[self.name]
        return [*(self._program or program), *flags, _source(file)]

    def request(self, number: int, code: str, env: Mapping[str, str]) -> bytes:
        """The request to run code, for a driver."""
        if self.name != "bash":
            return _encode({"id": number, "code": code, "env": dict(env)}).encode() + b"\n"
        if "\0" in code:
            raise InvalidArgument("code for bash contains no NUL")
        if env:
            raise InvalidArgument("variables of one call are not for bash: export them in the code")
        return f"{number}\0{code}\0".encode("utf-8", "surrogateescape")
