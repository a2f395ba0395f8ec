from __future__ import annotations

import base64
import json
import shutil
import threading
import time

import pytest
from conftest import descriptors, eventually, pictures

import stockade


def test_what_code_defines_stays(sb: stockade.Sandbox) -> None:
    assert sb.run_code("x = 41").text is None
    assert sb.run_code("x + 1").text == "42"
    assert sb.run_code("def f(a):\n    return a * 2\nf(x)").text == "82"
    done = sb.run_code("import sys; print('out'); print('err', file=sys.stderr); 'value'")
    assert (done.logs.stdout, done.logs.stderr, done.text, done.error) == (["out\n"], ["err\n"], "'value'", None)
    assert done.execution_count == 4 and json.loads(done.to_json())["logs"]["stdout"] == ["out\n"]
    assert sb.run_code("import os; os.system('echo from a child')").logs.stdout == ["from a child\n"]
    assert sb.run_code("input()").error is not None
    assert sb.run_code("import asyncio; await asyncio.sleep(0); 7").text == "7"
    assert sb.run_code("import os; os.environ['A']", envs={"A": "b"}).text == "'b'"
    assert sb.run_code("'A' in os.environ").text == "False"
    assert sb.run_code("__name__").text == "'__main__'"
    assert sb.run_code("").text is None


def test_an_error_has_a_traceback_of_the_code_alone(sb: stockade.Sandbox) -> None:
    errors: list[stockade.ExecutionError] = []
    error = sb.run_code("def f():\n    return 1 / 0\nf()", on_error=errors.append).error
    assert error and errors == [error]
    assert (error.name, error.value) == ("ZeroDivisionError", "division by zero")
    assert "return 1 / 0" in error.traceback and "evaluate" not in error.traceback
    syntax = sb.run_code("x = ").error
    assert syntax and syntax.name == "SyntaxError"
    gone = sb.run_code("import sys; sys.exit(3)").error
    assert gone and gone.name == "SystemExit"
    assert sb.run_code("1").text == "1"


def test_results_have_formats(sb: stockade.Sandbox) -> None:
    code = (
        "class Shown:\n"
        "    def _repr_html_(self): return '<b>x</b>'\n"
        "    def _repr_png_(self): return b'PNG'\n"
        "    def __repr__(self): return 'shown'\n"
        "display(1, Shown())\n"
        "Shown()"
    )
    seen: list[stockade.Result] = []
    done = sb.run_code(code, on_result=seen.append)
    assert seen == done.results and [result.is_main_result for result in seen] == [False, False, True]
    last = seen[-1]
    assert (last.text, last.html, base64.b64decode(last.png or "")) == ("shown", "<b>x</b>", b"PNG")
    assert list(last.formats()) == ["text", "html", "png"] and last._repr_html_() == "<b>x</b>"


def test_pictures_of_matplotlib() -> None:
    pytest.importorskip("matplotlib")
    with stockade.Sandbox(**pictures()) as sandbox:
        done = sandbox.run_code(
            "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.figure(); None", timeout=120
        )
        assert done.error is None, done.error
        pictures_ = [base64.b64decode(result.png) for result in done.results if result.png]
        assert len(pictures_) == 2 and all(one.startswith(b"\x89PNG") for one in pictures_)
        assert sandbox.run_code("plt.get_fignums()").text == "[]"


def test_output_comes_as_it_is_printed_and_is_bounded(sb: stockade.Sandbox) -> None:
    pieces: list[str] = []
    sb.run_code("import time\nprint('a'); time.sleep(0.2); print('b')", on_stdout=pieces.append)
    assert pieces == ["a\n", "b\n"]
    done = sb.run_code("print('x' * 5_000_000)", max_output=10)
    assert done.logs.stdout == ["x" * 10] and done.logs.stdout_truncated and not done.logs.stderr_truncated
    assert not sb.run_code("print(1)").logs.stdout_truncated


def test_a_call_over_its_time_is_interrupted_and_the_variables_stay(sb: stockade.Sandbox) -> None:
    sb.run_code("kept = 5")
    with pytest.raises(stockade.Timeout, match="it was interrupted") as late:
        sb.run_code("print('begun')\nwhile True: pass", timeout=0.5)
    assert late.value.stdout == "begun\n"
    assert sb.run_code("kept").text == "5"
    with pytest.raises(stockade.Timeout, match="killed"):
        sb.run_code("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", timeout=0.3)
    lost = sb.run_code("kept").error
    assert lost and lost.name == "NameError"


def test_an_interrupt_from_another_thread(sb: stockade.Sandbox) -> None:
    sb.run_code("1")
    threading.Timer(0.4, sb.interrupt).start()
    error = sb.run_code("import time; time.sleep(60)").error
    assert error and error.name == "KeyboardInterrupt"
    assert sb.run_code("2").text == "2"


def test_an_interpreter_that_ends_is_started_anew(sb: stockade.Sandbox) -> None:
    error = sb.run_code("print('last words', flush=True); import os; os._exit(3)")
    assert error.error and error.error.name == "InterpreterExit" and "exit code 3" in error.error.value
    assert error.logs.stdout == ["last words\n"]
    assert sb.run_code("1 + 1").text == "2"
    killed = sb.run_code("os = __import__('os'); os.kill(os.getpid(), 9)").error
    assert killed and "137" in killed.value
    assert sb.run_code("1 + 2").text == "3"


CHANNEL = """
import os, stat
c = next(fd for fd in range(3, 50) if os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode))
"""


@pytest.mark.parametrize(
    "said",
    [
        "b'nonsense\\n'",
        "b'[]\\n'",
        "b'{}\\n'",
        "b'\\xff\\xfe\\n'",
        "b'[' * 100000 + b'\\n'",
        'b\'{"done":99,"error":null}\\n\'',
        'b\'{"result":{"png":[1]}}\\n\'',
        "b'1' * 100000 + b'\\n'",
        "b'{\"result\":{}}\\n' * 1001",
        "b'x' * (33 << 20)",
    ],
)
def test_nothing_that_an_interpreter_says_is_trusted(sb: stockade.Sandbox, said: str) -> None:
    with pytest.raises(stockade.ProtocolError):
        sb.run_code(
            CHANNEL + f"data = {said}\nwhile data: data = data[os.write(c, data):]\nimport time; time.sleep(30)", timeout=60
        )
    assert sb.run_code("40 + 2").text == "42"


def test_what_was_said_before_it_was_asked_is_no_answer(sb: stockade.Sandbox) -> None:
    forged = 'b\'{"done":2,"error":null,"count":2}\\n\''
    sb.run_code(CHANNEL + f"import threading\nthreading.Timer(0.2, lambda: os.write(c, {forged})).start()")
    time.sleep(0.5)
    assert sb.run_code("'honest'").text == "'honest'"


def test_contexts_are_apart_and_limited(sb: stockade.Sandbox) -> None:
    one = sb.create_code_context(cwd="/tmp", envs={"A": "b"})
    sb.run_code("x = 1")
    assert sb.run_code("x = 2; import os; os.getcwd(), os.environ['A']", context=one).text == "('/tmp', 'b')"
    assert sb.run_code("x").text == "1" and sb.run_code("x", context=one).text == "2"
    assert len(sb.list_code_contexts()) == 2
    sb.remove_code_context(one)
    assert len(sb.list_code_contexts()) == 1
    with pytest.raises(stockade.InvalidArgument):
        sb.run_code("1", language="cobol")


def test_bash(sb: stockade.Sandbox) -> None:
    assert sb.run_code('a=5; cd /tmp; f() { echo "got $1"; }', language="bash").error is None
    done = sb.run_code("f $a; pwd; echo e >&2; cat", language="bash")
    assert (done.logs.stdout, done.logs.stderr) == (["got 5\n", "/tmp\n"], ["e\n"])
    error = sb.run_code("(exit 3)", language="bash").error
    assert error and (error.name, error.value) == ("ExitStatus", "3")
    with pytest.raises(stockade.Timeout):
        sb.run_code("while :; do :; done", language="bash", timeout=0.3)
    assert sb.run_code("exit 4", language="bash").error
    assert sb.run_code("echo again", language="bash").logs.stdout == ["again\n"]


@pytest.mark.skipif(not shutil.which("node"), reason="there is no node")
def test_node(sb: stockade.Sandbox) -> None:
    node = "node"
    assert sb.run_code("const x = 20; let y = 1; function f(a) { return a * 2 }", language=node).error is None
    assert sb.run_code("f(x) + y", language=node).text == "41"
    done = sb.run_code("console.log('out'); console.error('err'); ({a: [1, 2]})", language=node)
    assert (done.logs.stdout, done.logs.stderr) == (["out\n"], ["err\n"])
    assert done.text == "{ a: [ 1, 2 ] }" and done.results[0].json == {"a": [1, 2]}
    error = sb.run_code("null.x", language=node).error
    assert error and error.name == "TypeError" and "<cell" in error.traceback
    assert sb.run_code("await new Promise(r => setTimeout(r, 10)); return 3", language=node).text == "3"
    assert sb.run_code("Promise.resolve(4)", language=node).text == "4"
    assert sb.run_code("require('os').EOL", language=node).text == "'\\n'"
    with pytest.raises(stockade.Timeout, match="it was interrupted"):
        sb.run_code("while (true) {}", language=node, timeout=0.5)
    assert sb.run_code("x", language=node).text == "20"


def test_no_descriptor_is_left() -> None:
    with stockade.Sandbox() as sandbox:
        sandbox.run_code("1")
    del sandbox
    before = descriptors()
    with stockade.Sandbox() as sandbox:
        for _ in range(3):
            sandbox.run_code("import os; os._exit(0)")
        sandbox.run_code("1")
    del sandbox
    assert eventually(lambda: descriptors() <= before)


def test_ctrl_c_keeps_the_variables() -> None:
    import signal
    import subprocess
    import sys

    script = (
        "import stockade\nsb = stockade.Sandbox()\nsb.run_code('x = 5')\nprint('ready', flush=True)\n"
        "try: sb.run_code('while True: pass')\n"
        "except KeyboardInterrupt: print(sb.run_code('x').text)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout and child.stdout.readline() == "ready\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=30)[0] == "5\n"
