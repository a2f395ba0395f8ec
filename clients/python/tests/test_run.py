from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import descriptors, eventually

import stockade


def test_a_run_has_output_code_usage_and_report() -> None:
    result = stockade.run(
        ["python3", "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"], check=False
    )
    assert (result.stdout, result.stderr, result.exit_code, result.status) == ("out\n", "err\n", 3, "nonzero")
    assert result.error == "exit code 3" and not result.stdout_truncated
    assert result.usage.wall_us and result.usage.cpu_us
    assert result.report["schema"] == "stockade/report/v1" and result.report["enforced"]["no_new_privs"]
    assert pickle.loads(pickle.dumps(result)) == result


def test_words_of_a_string_are_the_shells() -> None:
    assert stockade.run("echo $((6 * 7)) | tr 4 5", envs={"A": "b c"}).stdout == "52\n"
    assert stockade.run('echo "$A"; cat', envs={"A": "b c"}, stdin="fed").stdout == "b c\nfed"
    assert stockade.run(["printf", "%s", b"\xff"]).stdout == "\ufffd"


def test_failures_raise_with_the_report() -> None:
    with pytest.raises(stockade.CommandExitException) as failed:
        stockade.run("echo why >&2; exit 7")
    assert (failed.value.exit_code, failed.value.stderr) == (7, "why\n") and "why" in str(failed.value)
    assert failed.value.report and failed.value.report["status"] == "nonzero"
    with pytest.raises(stockade.Timeout) as late:
        stockade.run("echo begun; sleep 60", timeout=0.3)
    assert late.value.stdout == "begun\n" and late.value.result.status == "timeout_wall"
    again = pickle.loads(pickle.dumps(late.value))
    assert type(again) is stockade.Timeout and again.result == late.value.result and str(again) == str(late.value)
    assert stockade.run("sleep 60", timeout=0.2, check=False).status == "timeout_wall"
    with pytest.raises(stockade.Timeout, match="CPU time"):
        stockade.run("while :; do :; done", cpu_time=0.2)


def test_what_cannot_start_says_why() -> None:
    with pytest.raises(stockade.SetupError, match="no-such-command"):
        stockade.run(["no-such-command"], check=False)
    with pytest.raises(stockade.SetupError, match="/no/such/source"):
        stockade.run(["true"], volumes="/no/such/source:/x")
    says = r"^source: /no/such: No such file or directory \(from --workspace /no/such\)"
    for start in (lambda: stockade.run(["true"], workspace="/no/such"), lambda: stockade.Sandbox(workspace="/no/such")):
        with pytest.raises(stockade.SetupError, match=says) as missing:
            start()
        assert missing.value.hint and "create it first" in missing.value.hint
    with pytest.raises(stockade.SetupError) as mistaken:
        stockade.run(["true"], args=["--memroy=1G"])
    assert mistaken.value.hint and "memory" in mistaken.value.hint
    with pytest.raises(stockade.InvalidArgument, match="memroy"):
        stockade.run(["true"], memroy="1G")  # type: ignore[call-arg]
    with pytest.raises(stockade.InvalidArgument):
        stockade.run([])
    with pytest.raises(stockade.InvalidArgument):
        stockade.run(["true"], timeout=-1)


def test_a_denial_is_named() -> None:
    with pytest.raises(stockade.Denied) as denied:
        stockade.run(["unshare", "-r", "true"], explain_denials=True)
    assert denied.value.result.denials
    assert {denial.layer for denial in denied.value.result.denials} == {"seccomp"}
    assert any(denial.op == "unshare" for denial in denied.value.result.denials)


def test_output_is_bounded_and_says_so() -> None:
    result = stockade.run("head -c 300000 /dev/zero | tr '\\0' x; echo e >&2", max_output=1000)
    assert result.stdout == "x" * 1000 and result.stdout_truncated
    assert result.stderr == "e\n" and not result.stderr_truncated
    exact = stockade.run("head -c 1000 /dev/zero", max_output=1000)
    assert len(exact.stdout) == 1000 and not exact.stdout_truncated
    assert len(stockade.run("head -c 9000000 /dev/zero").stdout) == 8 << 20
    assert len(stockade.run("head -c 9000000 /dev/zero", max_output=None).stdout) == 9_000_000


def test_output_comes_as_it_is_printed() -> None:
    pieces: list[str] = []
    errors: list[str] = []
    stockade.run("printf '\\303'; sleep 0.2; printf '\\251'; echo e >&2", on_stdout=pieces.append, on_stderr=errors.append)
    assert ("".join(pieces), "".join(errors)) == ("é", "e\n")


def test_a_handler_that_fails_ends_the_run() -> None:
    before = descriptors()

    def fail(_: str) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        stockade.run("echo x; sleep 60", on_stdout=fail)
    assert eventually(lambda: descriptors() <= before)


def test_the_options_are_those_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("data")
    result = stockade.run(
        "cat in; echo more >> in; ulimit -n; pwd; umask",
        workspace=tmp_path,
        ulimits={"nofile": 64},
        umask=0o27,
        explain_denials=False,
        keep_env=None,  # type: ignore[arg-type]
    )
    assert result.stdout == "data64\n/workspace\n0027\n"
    assert (tmp_path / "in").read_text() == "datamore\n"
    with pytest.raises(stockade.CommandFailed):
        stockade.run("touch /usr/planted")
    assert not Path("/usr/planted").exists()


def test_runs_in_threads_and_leaves_no_descriptor() -> None:
    stockade.run(["true"])
    before, results = descriptors(), {}

    def one(number: int) -> None:
        results[number] = stockade.run(["echo", str(number)]).stdout

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: f"{number}\n" for number in range(8)}
    assert eventually(lambda: descriptors() <= before)


def test_the_program_is_found(monkeypatch: Any, tmp_path: Path) -> None:
    from stockade._program import program

    fake = tmp_path / "stockade"
    fake.write_text("#!/bin/sh\nexit 9\n")
    fake.chmod(0o755)
    monkeypatch.setenv("STOCKADE_PROGRAM", os.fspath(fake))
    program.cache_clear()
    try:
        assert program() == os.fspath(fake)
        with pytest.raises(stockade.SetupError, match="exit code 9"):
            stockade.run(["true"])
        with pytest.raises(stockade.SetupError):
            stockade.Sandbox()
    finally:
        program.cache_clear()
