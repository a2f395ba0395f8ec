"""`sandbox.files`: files, as the sandbox's own user sees them. Every path is resolved inside."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from enum import Enum
from io import FileIO
from typing import Any, Dict, Iterable, Iterator, List, Literal, Mapping, Optional, Tuple, Union, overload

from stockade._limits import Calls
from stockade._options import Size, size_bytes
from stockade._protocol import text
from stockade._session import Session
from stockade.errors import Error, FileError, FileNotFound, InvalidArgument, ProtocolError

MAX_SIZE = 256 << 20
"""The largest file that `read` reads by default, in bytes."""
MOST_ENTRIES = 100_000
_PIECE = 1 << 20
Path = Union[str, "os.PathLike[str]"]
Data = Union[str, bytes, Iterable[bytes]]


class FileType(Enum):
    """What a name stands for."""

    FILE = "file"
    DIR = "dir"
    SYMLINK = "symlink"
    OTHER = "other"


@dataclass(frozen=True)
class EntryInfo:
    """A file, directory or other entry."""

    name: str
    path: str
    type: FileType
    size: int
    mode: int
    uid: int
    gid: int
    modified_time: datetime
    symlink_target: Optional[str] = None
    _stamp: Tuple[int, ...] = field(default=(), repr=False)

    @property
    def permissions(self) -> str:
        """As `ls -l` shows them."""
        letters = "".join(letter if self.mode >> bit & 1 else "-" for bit, letter in zip(range(8, -1, -1), "rwxrwxrwx"))
        return {FileType.DIR: "d", FileType.SYMLINK: "l"}.get(self.type, "-") + letters


class FilesystemEventType(Enum):
    """What happened to an entry."""

    CREATE = "create"
    REMOVE = "remove"
    WRITE = "write"
    CHMOD = "chmod"


@dataclass(frozen=True)
class FilesystemEvent:
    """A change below a watched directory. `name` is relative to it."""

    name: str
    type: FilesystemEventType
    entry: Optional[EntryInfo] = None


class WatchHandle:
    """Sees changes by comparing: two changes of a file between two looks are one, and a rename is a removal and a creation."""

    def __init__(self, files: "Files", path: str, recursive: bool) -> None:
        self._files, self._path, self._recursive = files, path, recursive
        self._open = True
        self._seen = self._look()

    def _look(self) -> Dict[str, EntryInfo]:
        found = self._files._walk(self._path, None if self._recursive else 1)
        return {posixpath.relpath(entry.path, self._path): entry for entry in found}

    def get_new_events(self) -> List[FilesystemEvent]:
        """What has changed since the last call."""
        if not self._open:
            raise InvalidArgument("the watch was stopped")
        before, now = self._seen, self._look()
        self._seen = now
        events = [FilesystemEvent(name, FilesystemEventType.REMOVE) for name in before if name not in now]
        for name, entry in now.items():
            known = before.get(name)
            if known is None:
                events.append(FilesystemEvent(name, FilesystemEventType.CREATE, entry))
            elif entry.type is not FileType.DIR and known._stamp != entry._stamp:
                events.append(FilesystemEvent(name, FilesystemEventType.WRITE, entry))
            if known is not None and known.mode != entry.mode:
                events.append(FilesystemEvent(name, FilesystemEventType.CHMOD, entry))
        return events

    def stop(self) -> None:
        """Ends the watch."""
        self._open = False


class Files:
    """The files of a sandbox. A path that is not absolute is below the sandbox's working directory."""

    def __init__(self, session: Session, calls: Calls) -> None:
        self._session = session
        self._calls = calls
        self._cwd: Optional[str] = None

    def _at(self, path: Path) -> str:
        """The path, absolute."""
        given = os.fspath(path)
        if given.startswith("/"):
            return given
        if self._cwd is None:
            status = self._session.ask("status").get("status")
            try:
                cwd = status["plan"]["command"]["cwd"]  # type: ignore[index]
            except (KeyError, TypeError):
                cwd = None
            self._cwd = cwd if isinstance(cwd, str) else "/"
        # `.` alone can be left out: what `..` stands for depends on links.
        return posixpath.join(self._cwd, *(part for part in given.split("/") if part != "."))

    def _begin(self, path: Path) -> str:
        self._calls.take()
        return self._at(path)

    @overload
    def read(self, path: Path, format: Literal["text"] = "text", *, max_size: Optional[Size] = MAX_SIZE) -> str: ...
    @overload
    def read(self, path: Path, format: Literal["bytes"], *, max_size: Optional[Size] = MAX_SIZE) -> bytes: ...
    @overload
    def read(self, path: Path, format: Literal["stream"], *, max_size: Optional[Size] = MAX_SIZE) -> Iterator[bytes]: ...

    def read(
        self, path: Path, format: str = "text", *, max_size: Optional[Size] = MAX_SIZE
    ) -> Union[str, bytes, Iterator[bytes]]:
        """What a file contains. A file of more than `max_size` bytes is refused, also if it grows meanwhile."""
        if format not in ("text", "bytes", "stream"):
            raise InvalidArgument(f"format: {format!r} is not text, bytes or stream")
        at = self._begin(path)
        _, fd = self._session.ask_for_fd("open", path=text(at), access="read")
        pieces = _pieces(FileIO(fd), at, size_bytes(max_size, "max_size"))
        if format == "stream":
            return pieces
        content = b"".join(pieces)
        return content if format == "bytes" else content.decode("utf-8", "replace")

    def write(self, path: Path, data: Data, *, mode: Optional[int] = None) -> EntryInfo:
        """Writes a file, which is made if it does not exist, as are the directories on the way."""
        return self._write(self._begin(path), data, mode)

    def write_files(self, files: Iterable[Mapping[str, Any]]) -> List[EntryInfo]:
        """Writes files that are given as `{"path": …, "data": …}`."""
        self._calls.take()
        return [self._write(self._at(one["path"]), one["data"], None) for one in files]

    def _write(self, at: str, data: Data, mode: Optional[int]) -> EntryInfo:
        fields: Dict[str, Any] = {"access": "write", "create": True, "truncate": True, "parents": True}
        if mode is not None:
            fields["mode"] = mode
        _, fd = self._session.ask_for_fd("open", path=text(at), **fields)
        try:
            for piece in _given(data):
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(fd, rest) :]
        except OSError as error:
            raise FileError(f"{at}: {error.strerror}", error.errno) from None
        finally:
            os.close(fd)
        return self._info(at)

    def get_info(self, path: Path) -> EntryInfo:
        """What a path stands for. A symlink is described itself."""
        return self._info(self._begin(path))

    def _info(self, at: str) -> EntryInfo:
        reply = self._session.ask("stat", path=text(at), no_follow=True)
        return _entry(reply.get("file"), posixpath.basename(at.rstrip("/")) or "/", at)

    def exists(self, path: Path) -> bool:
        """Whether there is something at a path."""
        try:
            self.get_info(path)
        except FileNotFound:
            return False
        return True

    def list(self, path: Path, depth: Optional[int] = 1) -> List[EntryInfo]:
        """The entries of a directory, by name; with `depth` also those of directories in it (`None`: all)."""
        if depth is not None and depth < 1:
            raise InvalidArgument(f"depth: {depth!r} is less than 1")
        return sorted(self._walk(self._begin(path), depth), key=lambda entry: entry.path)

    def _walk(self, at: str, depth: Optional[int]) -> List[EntryInfo]:
        found: List[EntryInfo] = []
        waiting = [(at, 1)]
        while waiting:
            directory, level = waiting.pop()
            try:
                entries = self._entries(directory)
            except (FileNotFound, FileError):
                if level == 1:
                    raise
                continue  # it was removed meanwhile, or may not be read
            found += entries
            if len(found) > MOST_ENTRIES:
                raise Error(f"{at} has more than {MOST_ENTRIES} entries")
            if depth is None or level < depth:
                waiting += [(entry.path, level + 1) for entry in entries if entry.type is FileType.DIR]
        return found

    def _entries(self, directory: str) -> List[EntryInfo]:
        entries: Dict[str, EntryInfo] = {}
        start: Dict[str, Any] = {}
        while True:
            reply = self._session.ask("list", path=text(directory), **start)
            listed = reply.get("entries")
            for one in listed if isinstance(listed, list) else ():
                name = _string(one.get("name") if isinstance(one, dict) else None)
                entries[name] = _entry(one, name, posixpath.join(directory, name))
            if len(entries) > MOST_ENTRIES:
                raise Error(f"{directory} has more than {MOST_ENTRIES} entries")
            if not isinstance(reply.get("next"), str):
                return list(entries.values())
            start = {"from": reply["next"]}

    def make_dir(self, path: Path, *, mode: Optional[int] = None) -> bool:
        """Makes a directory, and those on the way. Whether it did not exist before."""
        at = self._begin(path)
        fields: Dict[str, Any] = {} if mode is None else {"mode": mode}
        try:
            self._session.ask("make_dir", path=text(at), **fields)
        except FileNotFound:
            self._session.ask("make_dir", path=text(at), parents=True, **fields)
        except FileError as error:
            if error.errno != 17 or self._info(at).type is not FileType.DIR:
                raise
            return False
        return True

    def rename(self, old_path: Path, new_path: Path) -> EntryInfo:
        """Renames something. A file at the new path is replaced."""
        old, new = self._begin(old_path), self._at(new_path)
        self._session.ask("rename", path=text(old), to=text(new))
        return self._info(new)

    def remove(self, path: Path) -> None:
        """Removes a file, or a directory with everything in it."""
        at = self._begin(path)
        for _ in range(1000):  # each works for a while; a workload can add files meanwhile
            if self._session.ask("remove", path=text(at), recursive=True).get("more") is not True:
                return
        raise Error(f"{at}: files are added faster than they are removed")

    def watch_dir(self, path: Path, recursive: bool = False) -> WatchHandle:
        """Watches a directory: `get_new_events` of the handle tells what has changed."""
        return WatchHandle(self, self._begin(path), recursive)


def _pieces(opened: FileIO, at: str, limit: Optional[int]) -> Iterator[bytes]:
    with opened as file:
        size = 0
        while True:
            try:
                piece = file.read(_PIECE)
            except OSError as error:
                raise FileError(f"{at}: {error.strerror}", error.errno) from None
            if not piece:
                return
            size += len(piece)
            if limit is not None and size > limit:
                raise FileError(f"{at}: has more than {limit} bytes", hint="raise max_size, or read it with format='stream'")
            yield piece


def _given(data: Data) -> Iterable[bytes]:
    if isinstance(data, str):
        return [data.encode()]
    return [data] if isinstance(data, bytes) else data


def _string(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("hex"), str):
        try:
            return os.fsdecode(bytes.fromhex(value["hex"]))
        except ValueError:
            pass
    if not isinstance(value, str) or not value:
        raise ProtocolError("the session sent an entry without a name")
    return value


def _entry(record: Any, name: str, at: str) -> EntryInfo:
    if not isinstance(record, dict):
        raise ProtocolError(f"the session did not describe {at}")

    def number(key: str) -> int:
        value = record.get(key)
        return value if isinstance(value, int) else 0

    kinds = {"file": FileType.FILE, "directory": FileType.DIR, "symlink": FileType.SYMLINK}
    target, modified = record.get("target"), number("modified_ns")
    return EntryInfo(
        name=name,
        path=at,
        type=kinds.get(str(record.get("type")), FileType.OTHER),
        size=number("size_bytes"),
        mode=number("mode"),
        uid=number("uid"),
        gid=number("gid"),
        modified_time=datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=min(max(modified // 1000, 0), 2**56)),
        symlink_target=None if target is None else _string(target),
        _stamp=(modified, number("size_bytes")),
    )
