"""Where the program `stockade` is."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from functools import cache
from typing import Iterator

from stockade.errors import SetupError


def _candidates(name: str) -> Iterator[str]:
    given = os.environ.get("STOCKADE_PROGRAM")
    if given and name == "stockade":
        yield given
        return
    yield os.path.join(sysconfig.get_path("scripts"), name)
    yield os.path.join(os.path.dirname(sys.executable), name)
    # `pip install --user`, and `pip install --target DIRECTORY`.
    scheme = getattr(sysconfig, "get_preferred_scheme", lambda _: f"{os.name}_user")("user")
    yield os.path.join(sysconfig.get_path("scripts", scheme), name)
    yield os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin", name)
    found = shutil.which(name)
    if found:
        yield found


@cache
def program(name: str = "stockade") -> str:
    """The path of the program: that of STOCKADE_PROGRAM, the one that was installed with this package, or that of PATH."""
    for path in _candidates(name):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise SetupError(f"the program {name} was not found", hint="install the wheel, or set STOCKADE_PROGRAM to its path")
