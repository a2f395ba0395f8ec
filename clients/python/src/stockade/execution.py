"""What code did: its results, what it printed, and its error. Everything here comes from inside the sandbox."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from stockade.errors import ProtocolError

_TEXTS = ("text", "html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "javascript")


@dataclass
class Logs:
    """What was printed, by lines."""

    stdout: List[str] = field(default_factory=list)
    stderr: List[str] = field(default_factory=list)
    stdout_truncated: bool = False
    """Whether more was printed than `max_output` bytes."""
    stderr_truncated: bool = False

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps({"stdout": self.stdout, "stderr": self.stderr})


@dataclass
class ExecutionError:
    """An exception that the code raised."""

    name: str
    value: str
    traceback: str

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps({"name": self.name, "value": self.value, "traceback": self.traceback})


@dataclass
class Result:
    """The value of the last expression, a picture, or what `display` was given. Binary formats are base64, as in Jupyter."""

    text: Optional[str] = None
    html: Optional[str] = None
    markdown: Optional[str] = None
    svg: Optional[str] = None
    png: Optional[str] = None
    jpeg: Optional[str] = None
    pdf: Optional[str] = None
    latex: Optional[str] = None
    javascript: Optional[str] = None
    json: Optional[Any] = None
    is_main_result: bool = False

    def formats(self) -> Iterator[str]:
        """The formats that there are."""
        return (name for name in (*_TEXTS, "json") if getattr(self, name) is not None)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def _repr_html_(self) -> Optional[str]:
        return self.html

    def _repr_markdown_(self) -> Optional[str]:
        return self.markdown

    def _repr_svg_(self) -> Optional[str]:
        return self.svg

    def _repr_png_(self) -> Optional[str]:
        return self.png

    def _repr_jpeg_(self) -> Optional[str]:
        return self.jpeg


@dataclass
class Execution:
    """What became of a piece of code."""

    results: List[Result] = field(default_factory=list)
    logs: Logs = field(default_factory=Logs)
    error: Optional[ExecutionError] = None
    execution_count: Optional[int] = None

    @property
    def text(self) -> Optional[str]:
        """The value of the last expression, as text."""
        return next((result.text for result in self.results if result.is_main_result), None)

    def to_json(self) -> str:
        """As JSON."""
        shown = {
            "results": [{name: result[name] for name in result.formats()} for result in self.results],
            "logs": {"stdout": self.logs.stdout, "stderr": self.logs.stderr},
            "error": json.loads(self.error.to_json()) if self.error else None,
        }
        return json.dumps(shown)


class Done(NamedTuple):
    """The last answer to a request."""

    id: Any
    error: Optional[ExecutionError]
    number: Optional[int]


def answer_of(answer: Dict[str, Any]) -> Tuple[Optional[Result], Optional[Done]]:
    """Reads an answer of an interpreter, which may be anything."""
    offered = answer.get("result")
    if isinstance(offered, dict):
        result = Result(json=offered.get("json"), is_main_result=answer.get("main") is True)
        for name in _TEXTS:
            value = offered.get(name)
            if value is not None and not isinstance(value, str):
                raise ProtocolError(f"the interpreter's result has a {name} that is not a string")
            setattr(result, name, value)
        return result, None
    if "done" not in answer:
        return None, None
    count, raised = answer.get("count"), answer.get("error")
    error = None
    if isinstance(raised, dict):
        error = ExecutionError(*(str(raised.get(key, "")) for key in ("name", "value", "traceback")))
    return None, Done(answer["done"], error, count if isinstance(count, int) else None)
