"""The examples of docs/python.md run, one after the other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs/python.md"


def blocks(language: str) -> "list[str]":
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.M | re.S)


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_the_example(number: int, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    code = blocks("python")[number]
    scope: "dict[str, Any]" = {"__name__": "example"}
    exec(compile("import stockade", "docs", "exec"), scope)
    exec(compile(code, f"docs/python.md, example {number + 1}", "exec"), scope)


def test_the_configurations_are_json() -> None:
    assert len([json.loads(block) for block in blocks("json")]) >= 3


def test_every_error_is_described() -> None:
    import stockade
    from stockade import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, stockade.Error)]
    assert kinds and all(f"`{kind.__name__}`" in PAGE.read_text() or kind is stockade.Error for kind in kinds)
