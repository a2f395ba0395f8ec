"""Agents of other libraries, with models that follow a script."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import pictures

import stockade


def test_tools_of_langchain(sb: stockade.Sandbox) -> None:
    pytest.importorskip("langchain_core")
    from stockade.langchain import sandbox_tools

    tools = {tool.name: tool for tool in sandbox_tools(sb, timeout=1)}
    assert tools["run_command"].invoke({"command": "echo data > f; cat f; exit 3"}) == "data\n\n\n[exit code 3]"
    assert tools["run_code"].invoke({"code": "x = 41; print('set')"}) == "set"
    assert tools["run_code"].invoke({"code": "x + 1"}) == "42"
    assert "ZeroDivisionError" in tools["run_code"].invoke({"code": "1 / 0"})
    assert "longer than" in tools["run_code"].invoke({"code": "while True: pass"})
    assert "command" in tools["run_command"].args


def test_an_agent_of_smolagents() -> None:
    pytest.importorskip("smolagents")
    from smolagents import CodeAgent, tool
    from smolagents.models import ChatMessage, MessageRole, Model

    from stockade.smolagents import SandboxExecutor

    class Scripted(Model):  # type: ignore[misc]
        steps = iter(["import platform\nx = double(20) + 2\nprint(platform.node(), x)", "1 / 0", "final_answer({'x': x})"])

        def generate(self, messages: Any, **_: Any) -> ChatMessage:
            return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: go on\n<code>\n{next(self.steps)}\n</code>")

    @tool  # type: ignore[untyped-decorator]
    def double(number: int) -> int:
        """Doubles a number.

        Args:
            number: the number
        """
        return number * 2

    executor = SandboxExecutor(hostname="agents", **pictures())  # its tools import Pillow
    agent = CodeAgent(tools=[double], model=Scripted(), executor=executor, verbosity_level=0)
    assert agent.run("work") == {"x": 42}
    said = str([step.dict() for step in agent.memory.steps])
    assert "agents 42" in said and "ZeroDivisionError" in said
    executor.cleanup()
    assert not executor.sandbox.is_running()
