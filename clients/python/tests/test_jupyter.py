"""Notebooks run in sandboxes, with nothing but a kernelspec entry."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually, pictures

nbformat = pytest.importorskip("nbformat")
nbconvert = pytest.importorskip("nbconvert.preprocessors")
pytest.importorskip("ipykernel")

# Of the sandboxes of these tests: other test processes have theirs, at the same time.
HOSTNAME = f"notebook-{os.getpid()}"


@pytest.fixture(autouse=True)
def kernelspec(tmp_path: Path, monkeypatch: Any) -> Path:
    from importlib.metadata import entry_points

    group = entry_points()
    found = group.select(group="jupyter_client.kernel_provisioners") if hasattr(group, "select") else []
    if "stockade" not in {one.name for one in found}:
        pytest.skip("the package is not installed, so Jupyter does not find the provisioner")
    given = pictures()
    spec = {
        "argv": [given["interpreters"]["python"][0], "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Sandboxed",
        "language": "python",
        "env": {"FROM_SPEC": "yes"},
        "metadata": {
            "kernel_provisioner": {
                "provisioner_name": "stockade",
                "config": {"options": {"ro": given["ro"], "args": given["args"], "workspace": "{cwd}", "hostname": HOSTNAME}},
            }
        },
    }
    place = tmp_path / "jupyter/kernels/sandboxed"
    place.mkdir(parents=True)
    (place / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    return place


def test_a_notebook_is_executed_in_a_sandbox(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SECRET", "of the host")
    work = tmp_path / "work"
    work.mkdir()
    (work / "data.csv").write_text("1,2\n")
    cells = [
        "import socket, os; print(socket.gethostname(), os.environ.get('SECRET'), os.environ['FROM_SPEC'])",
        "x = open('/workspace/data.csv').read(); open('/workspace/out.csv', 'w').write(x * 2)",
        "print([name for _, name in socket.if_nameindex() if name != 'lo'])",
        "len(x)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    before = sandboxes()
    runner = nbconvert.ExecutePreprocessor(kernel_name="sandboxed", timeout=120, startup_timeout=120)
    done, _ = runner.preprocess(notebook, {"metadata": {"path": str(work)}})
    outputs = [cell.outputs for cell in done.cells]
    assert outputs[0][0].text == f"{HOSTNAME} None yes\n"
    assert outputs[2][0].text == "[]\n"
    assert outputs[3][0].data["text/plain"] == "4"
    assert (work / "out.csv").read_text() == "1,2\n1,2\n"
    assert eventually(lambda: sandboxes() == before), "nothing is left"


def test_papermill_runs_a_notebook_with_parameters_in_a_sandbox(tmp_path: Path) -> None:
    papermill = pytest.importorskip("papermill")
    work, given, done = tmp_path / "work", tmp_path / "given.ipynb", tmp_path / "done.ipynb"
    work.mkdir()
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell("factor = 1", metadata={"tags": ["parameters"]}),
            nbformat.v4.new_code_cell(
                "import socket; open('/workspace/out', 'w').write(socket.gethostname()); print(6 * factor)"
            ),
        ],
        metadata={"kernelspec": {"name": "sandboxed", "display_name": "Sandboxed", "language": "python"}},
    )
    nbformat.write(notebook, given)
    before = sandboxes()
    papermill.execute_notebook(given, done, parameters={"factor": 7}, cwd=work, start_timeout=120, progress_bar=False)
    assert nbformat.read(done, as_version=4).cells[-1].outputs[0].text == "42\n"
    assert (work / "out").read_text() == HOSTNAME
    notebook.cells[-1].source = "1 / 0"
    nbformat.write(notebook, given)
    with pytest.raises(papermill.PapermillExecutionError, match="ZeroDivisionError"):
        papermill.execute_notebook(given, done, cwd=work, start_timeout=120, progress_bar=False)
    assert eventually(lambda: sandboxes() == before), "nothing is left"


def test_a_kernel_is_interrupted_and_restarted() -> None:
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name="sandboxed")
    manager.start_kernel(cwd=os.getcwd())
    try:
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=120)
        request = client.execute("x = 5\nprint('begun')\nwhile True: pass")
        assert eventually(lambda: client.get_iopub_msg(timeout=60)["content"].get("text") == "begun\n", 60)
        manager.interrupt_kernel()
        replies = (client.get_shell_msg(timeout=60) for _ in range(1000))
        ended = next(reply for reply in replies if reply["parent_header"].get("msg_id") == request)
        assert ended["content"]["ename"] == "KeyboardInterrupt"
        manager.restart_kernel(now=True)
        client.wait_for_ready(timeout=120)
        answer = client.execute_interactive("x", timeout=60, output_hook=lambda _: None)
        assert answer["content"]["ename"] == "NameError"
        client.stop_channels()
    finally:
        manager.shutdown_kernel(now=True)
    assert not manager.is_alive()


def sandboxes() -> int:
    """How many supervisors of sandboxes with this name there are."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        count += f"--hostname={HOSTNAME}".encode() in words and str(sys.executable).encode() not in words
    return count
