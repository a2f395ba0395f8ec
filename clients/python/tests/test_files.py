from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from conftest import descriptors, eventually

import stockade
from stockade import FilesystemEventType, FileType


def test_files_are_written_and_read(sb: stockade.Sandbox) -> None:
    info = sb.files.write("deep/er/a.txt", "text é")
    assert (info.name, info.path, info.type, info.size) == ("a.txt", "/home/sandbox/deep/er/a.txt", FileType.FILE, 7)
    assert sb.files.read("/home/sandbox/deep/er/a.txt") == "text é"
    assert sb.commands.run(["cat", "deep/er/a.txt"]).stdout == "text é"
    sb.files.write("/tmp/b", b"\xff\x00", mode=0o640)
    assert sb.files.read("/tmp/b", "bytes") == b"\xff\x00" and sb.files.get_info("/tmp/b").permissions == "-rw-r-----"
    sb.files.write("/tmp/b", "shorter"[:1])
    assert sb.files.read(Path("/tmp/b")) == "s"
    large = os.urandom(5_000_000)
    sb.files.write("/tmp/c", (large[at : at + 1_000_000] for at in range(0, len(large), 1_000_000)))
    assert sb.files.read("/tmp/c", "bytes") == large
    assert b"".join(sb.files.read("/tmp/c", "stream")) == large
    assert [one.name for one in sb.files.write_files([{"path": "/tmp/d", "data": "1"}, {"path": "/tmp/e", "data": b"2"}])] == [
        "d",
        "e",
    ]
    for not_utf8 in (os.fsdecode(b"/tmp/\xff"),):
        sb.files.write(not_utf8, "x")
        assert os.fsdecode(b"\xff") in {entry.name for entry in sb.files.list("/tmp")}


def test_names_are_listed_moved_and_removed(sb: stockade.Sandbox) -> None:
    assert sb.files.make_dir("/tmp/d/e/f") and not sb.files.make_dir("/tmp/d/e/f")
    sb.files.write("/tmp/d/a", "1")
    sb.commands.run("ln -s /etc/hostname /tmp/d/link; mkfifo /tmp/d/fifo")
    assert [(one.name, one.type) for one in sb.files.list("/tmp/d")] == [
        ("a", FileType.FILE),
        ("e", FileType.DIR),
        ("fifo", FileType.OTHER),
        ("link", FileType.SYMLINK),
    ]
    assert [one.path for one in sb.files.list("/tmp/d", depth=None) if one.type is FileType.DIR] == ["/tmp/d/e", "/tmp/d/e/f"]
    assert sb.files.get_info("/tmp/d/link").symlink_target == "/etc/hostname"
    assert sb.files.rename("/tmp/d/a", "/tmp/d/b").name == "b"
    assert sb.files.exists("/tmp/d/b") and not sb.files.exists("/tmp/d/a")
    sb.files.remove("/tmp/d")
    assert not sb.files.exists("/tmp/d")
    sb.commands.run("mkdir /tmp/many; cd /tmp/many; seq 3000 | xargs touch")
    assert len(sb.files.list("/tmp/many")) == 3000


def test_what_is_refused_says_why(sb: stockade.Sandbox) -> None:
    with pytest.raises(stockade.FileNotFoundException):
        sb.files.read("/nope")
    with pytest.raises(stockade.FileError) as directory:
        sb.files.read("/tmp")
    assert directory.value.errno == 21
    with pytest.raises(stockade.FileError):
        sb.files.write("/usr/planted", "x")
    sb.commands.run("mkfifo /tmp/fifo")
    with pytest.raises(stockade.FileError):
        sb.files.read("/tmp/fifo")
    sb.files.write("/tmp/x", "x" * 100)
    with pytest.raises(stockade.FileError, match="more than 10 bytes"):
        sb.files.read("/tmp/x", max_size=10)
    with pytest.raises(stockade.InvalidArgument):
        sb.files.list("/tmp", depth=0)
    assert sb.files.read("/tmp/x", max_size="1K") == "x" * 100


def test_no_path_leads_out(sb: stockade.Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    sb.commands.run(f"ln -s {tmp_path}/secret /tmp/link; ln -s / /tmp/root")
    for path in (
        f"{tmp_path}/secret",
        "/tmp/link",
        f"/tmp/root{tmp_path}/secret",
        f"/../..{tmp_path}/secret",
        "/proc/1/root/etc",
    ):
        with pytest.raises(stockade.Error):
            sb.files.read(path)


def test_the_quota_is_the_sandboxs() -> None:
    with stockade.Sandbox(scratch_size="1M") as sandbox:
        with pytest.raises(stockade.FileError) as full:
            sandbox.files.write("/tmp/x", "x" * 2_000_000)
        assert full.value.errno == 28
        assert sandbox.commands.run(["echo", "on"]).stdout == "on\n"


def test_changes_are_seen(sb: stockade.Sandbox) -> None:
    sb.files.make_dir("/tmp/w/in")
    sb.files.write("/tmp/w/a", "1")
    watch, deep = sb.files.watch_dir("/tmp/w"), sb.files.watch_dir("/tmp/w", recursive=True)
    assert watch.get_new_events() == []
    sb.commands.run("cd /tmp/w; echo 22 > a; touch b; touch in/c")
    seen = {(event.name, event.type) for event in watch.get_new_events()}
    assert seen == {("a", FilesystemEventType.WRITE), ("b", FilesystemEventType.CREATE)}
    assert ("in/c", FilesystemEventType.CREATE) in {(event.name, event.type) for event in deep.get_new_events()}
    sb.commands.run("cd /tmp/w; rm a; chmod 600 b")
    seen = {(event.name, event.type) for event in watch.get_new_events()}
    assert seen == {("a", FilesystemEventType.REMOVE), ("b", FilesystemEventType.CHMOD)}
    watch.stop()
    with pytest.raises(stockade.InvalidArgument):
        watch.get_new_events()


def test_threads_share_and_descriptors_do_not_leak(sb: stockade.Sandbox) -> None:
    sb.files.write("/tmp/0", "warm")
    before = descriptors()

    def work(number: int) -> None:
        for _ in range(10):
            sb.files.write(f"/tmp/{number}", str(number))
            assert sb.files.read(f"/tmp/{number}") == str(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    next(iter(sb.files.read("/tmp/1", "stream")))
    assert eventually(lambda: descriptors() <= before)
    assert sb.stats().calls == 162
