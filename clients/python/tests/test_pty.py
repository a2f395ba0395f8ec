"""Terminals: as an argument of a command, and with the names of E2B's SDK."""

from __future__ import annotations

from typing import List

import pytest
from conftest import eventually

import stockade


def test_a_command_has_a_terminal_of_its_size(sb: stockade.Sandbox) -> None:
    plain = sb.commands.run("tty; true")
    assert "not a tty" in plain.stdout
    shown = sb.commands.run("tty >&2; stty size; exit 3", pty=stockade.PtySize(rows=7, cols=31), check=False)
    assert shown.stdout.splitlines()[0].startswith("/dev/") and shown.stdout.splitlines()[1] == "7 31"
    assert (shown.exit_code, shown.stderr) == (3, "")
    typed = sb.commands.run("stty -echo; echo ready; read a; echo got $a", stdin="line\n", pty=stockade.PtySize())
    assert "got line" in typed.stdout


def test_output_of_a_terminal_is_bounded(sb: stockade.Sandbox) -> None:
    cut = sb.commands.run("head -c 300000 /dev/zero | tr '\\0' x", pty=stockade.PtySize(), max_output=1000)
    assert (cut.stdout, cut.stdout_truncated) == ("x" * 1000, True)


def test_a_shell_is_driven_and_resized(sb: stockade.Sandbox) -> None:
    pieces: List[bytes] = []
    shell = sb.pty.create(stockade.PtySize(rows=10, cols=40), pieces.append, envs={"PS1": "> "})

    def says(words: bytes) -> bool:
        return eventually(lambda: words in b"".join(pieces))

    sb.pty.send_stdin(shell.pid, b"stty size; echo $TERM$((6 * 7))\n")
    assert says(b"10 40") and says(b"xterm42")
    sb.pty.resize(shell.pid, stockade.PtySize(rows=20, cols=90))
    sb.pty.send_stdin(shell.pid, b"stty size\n")
    assert says(b"20 90")
    shell.send_stdin("sh -c 'echo begun$((1 + 1)); exec sleep 600'\n")
    assert says(b"begun2")
    shell.send_stdin(b"\x03")  # ctrl-C reaches the command, and the shell goes on
    shell.send_stdin("echo still $((1 + 1))\n")
    assert says(b"still 2")
    shell.close_stdin()
    assert shell.wait(timeout=20).exit_code in (0, 130)
    assert not sb.pty.kill(shell.pid)


def test_a_terminal_is_killed(sb: stockade.Sandbox) -> None:
    shell = sb.pty.create(cmd=["sleep", "600"])
    assert sb.pty.kill(shell.pid)
    with pytest.raises(stockade.CommandError):
        shell.wait(timeout=20)
    with pytest.raises(stockade.Error, match="ended"):
        shell.resize(stockade.PtySize())
    with pytest.raises(stockade.Error, match="no more input"):
        shell.send_stdin("x")
    assert not sb.pty.kill(1)
    with pytest.raises(stockade.InvalidArgument, match="pty"):
        sb.commands.run(["sleep", "600"], background=True).resize(stockade.PtySize())
