"""The user of a command."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stockade


@pytest.mark.parametrize("user", [1000, "1000", "1000:1000", "sandbox"])
def test_the_own_user_is_one_that_can_be_named(sb: stockade.Sandbox, user: "int | str") -> None:
    assert sb.commands.run("id -u; echo $HOME", user=user).stdout == "1000\n/home/sandbox\n"


def test_another_user_is_refused_with_the_way_out(sb: stockade.Sandbox) -> None:
    for user in (1001, "root", "1000:7"):
        with pytest.raises(stockade.SetupError, match="maps 1000 alone") as refused:
            sb.commands.run("touch ran", user=user)
        assert "--subuid" in (refused.value.hint or "")
    with pytest.raises(stockade.Error, match="no user with this name"):
        sb.commands.run("touch ran", user="alice")
    with pytest.raises(stockade.Error, match="not UID"):
        sb.commands.run("touch ran", user="1:")
    with pytest.raises(stockade.SetupError, match="maps 1000 alone"):
        sb.pty.create(user=1001).wait(20)
    assert sb.commands.run("ls").stdout == ""


def test_interpreters_have_users_too(sb: stockade.Sandbox) -> None:
    own = sb.create_code_context(language="bash", user=1000)
    assert sb.run_code("id -u", context=own).logs.stdout == ["1000\n"]
    other = sb.create_code_context(language="bash", user=1001)
    with pytest.raises(stockade.SetupError, match="maps 1000 alone"):
        sb.run_code("id -u", context=other)


def test_commands_in_asyncio_have_users() -> None:
    async def named() -> str:
        async with stockade.AsyncSandbox() as sb:
            with pytest.raises(stockade.SetupError):
                await sb.commands.run("id -u", user=1001)
            return (await sb.commands.run("id -u", user="sandbox")).stdout

    assert asyncio.run(named()) == "1000\n"


RANGE = """
import stockade
with stockade.Sandbox(subuid=True) as sb:
    a = sb.commands.run("umask 077; id -u; id -g; echo own > /tmp/own", user="1001:7")
    assert a.stdout == "1001\\n7\\n" and a.report["enforced"]["uid"] == 1001, a
    for user in ("root", 1002, None):
        b = sb.commands.run("cat /tmp/own", user=user, check=False)
        assert b.exit_code == 1 and "denied" in b.stderr, b
    context = sb.create_code_context(user="nobody")
    assert sb.run_code("import os; os.getuid()", context=context).text == "65534"
    shell = sb.pty.create(cmd=["sh", "-c", "id -u; stat -Lc %u /dev/stdin"], user=1001)
    assert shell.wait(20).stdout.split() == ["1001", "1001"], shell.stdout
"""


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/etc/subuid"), reason="covers /etc/subuid, which takes root")
def test_a_range_has_several_users(tmp_path: Path) -> None:
    ids = tmp_path / "ids"
    ids.write_text("0:200000:65536\n")
    cover = 'mount --bind "$0" /etc/subuid && mount --bind "$0" /etc/subgid && exec "$@"'
    words = ["unshare", "-m", "--propagation", "private", "sh", "-c", cover, str(ids), sys.executable, "-c", RANGE]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
