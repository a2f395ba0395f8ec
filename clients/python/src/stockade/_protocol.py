"""The session protocol, `stockade/session/v1`: docs/protocol.md describes it."""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import struct
from errno import ENOENT
from typing import Any, Dict, List, Optional, Sequence, Tuple

from stockade.errors import Error, FileError, FileNotFound, NotFound, ProtocolError, SandboxEnded

Reply = Dict[str, Any]

PROTOCOL = "stockade/session/v1"
LARGEST_PACKET = 65536
LARGEST_OBJECT = 16 << 20
MOST_DESCRIPTORS = 8
_SEALS = 0x2 | 0x4 | 0x8  # F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE
_ADD_SEALS, _GET_SEALS = 1033, 1034  # the module fcntl does not have them everywhere
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def text(word: "str | bytes | os.PathLike[str]") -> Any:
    """A string of the protocol."""
    raw = os.fsencode(word)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"hex": raw.hex()}


class Connection:
    """A connection to a session. One thread uses it at a time."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self.last_id = 0
        try:
            self._connect(path)
            uid = struct.unpack("3i", self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
            if uid != os.geteuid():
                raise ProtocolError("the session's socket belongs to another user")
            hello, _ = self.receive(10.0)
            if hello.get("protocol") != PROTOCOL:
                raise ProtocolError(f"the session speaks {hello.get('protocol')!r}, not {PROTOCOL}")
        except BaseException:
            self.socket.close()
            raise

    def _connect(self, path: str) -> None:
        directory = os.open(os.path.dirname(path), os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            # The path may be longer than an address can be.
            self.socket.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
        except (FileNotFoundError, ConnectionRefusedError):
            raise SandboxEnded("the session has ended") from None
        finally:
            os.close(directory)

    def fileno(self) -> int:
        """For poll."""
        return self.socket.fileno()

    def close(self) -> None:
        """The session kills the foreground commands of this connection."""
        self.socket.close()

    def send(self, op: str, fds: Sequence[int] = (), fields: Optional[Dict[str, Any]] = None) -> int:
        """Sends a request, and returns its id."""
        self.last_id += 1
        packet = _encode({"id": self.last_id, "op": op, **(fields or {})}).encode()
        if len(packet) > LARGEST_OBJECT:
            raise Error(f"a request of {len(packet)} bytes is too long")
        file = None
        try:
            if len(packet) > LARGEST_PACKET:
                file = os.memfd_create("packet", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
                with open(file, "wb", closefd=False) as whole:
                    whole.write(packet)
                fcntl.fcntl(file, _ADD_SEALS, _SEALS)
                packet, fds = b'{"in_memfd":true}', (file, *fds)
            socket.send_fds(self.socket, [packet], fds)
        except (BrokenPipeError, ConnectionResetError):
            raise SandboxEnded("the session has ended") from None
        finally:
            if file is not None:
                os.close(file)
        return self.last_id

    def receive(self, timeout: Optional[float] = None) -> Tuple[Reply, List[int]]:
        """The next reply with its descriptors."""
        if timeout is not None:
            waiting = select.poll()
            waiting.register(self.socket, select.POLLIN)
            if not waiting.poll(timeout * 1000):
                raise ProtocolError("the session does not answer")
        try:
            packet, fds, flags, _ = socket.recv_fds(self.socket, LARGEST_PACKET, MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            raise SandboxEnded("the session has ended") from None
        try:
            if not packet:
                raise SandboxEnded("the session has ended")
            if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
                raise ProtocolError("a packet of the session was cut")
            reply = _parse(packet)
            if reply.get("in_memfd") is True:
                reply = _parse(_content(fds.pop(0))) if fds else {}
            return reply, fds
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    def ask(self, op: str, timeout: Optional[float] = 30.0, **fields: Any) -> Reply:
        """Sends a request and waits for its last reply. A refusal is an error."""
        reply, fds = self.ask_for_fds(op, fields, timeout)
        for fd in fds:
            os.close(fd)
        return reply

    def ask_for_fds(self, op: str, fields: Dict[str, Any], timeout: Optional[float] = 30.0) -> Tuple[Reply, List[int]]:
        """The same, with the descriptors of the reply."""
        number = self.send(op, (), fields)
        while True:
            reply, fds = self.receive(timeout)
            if reply.get("id") == number and reply.get("event") != "started":
                return accepted(reply), fds
            for fd in fds:
                os.close(fd)


def accepted(reply: Reply) -> Reply:
    """The reply, unless the request was refused."""
    if reply.get("event") != "error":
        return reply
    record = reply.get("error")
    record = record if isinstance(record, dict) else {}
    message = f"{record.get('object')}: {record.get('reason')}"
    hint, errno = record.get("hint"), record.get("errno")
    hint = hint if isinstance(hint, str) else None
    if record.get("step") == "session_file":
        raise FileNotFound(message, hint=hint) if errno == ENOENT else FileError(message, errno, hint)
    raise (NotFound if record.get("object") == "command" else Error)(message, hint=hint)


def _parse(packet: bytes) -> Reply:
    try:
        reply = json.loads(packet.decode())  # of bytes it would first find out which encoding they have
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a packet of the session is not JSON: {error}") from None
    if not isinstance(reply, dict):
        raise ProtocolError("a packet of the session is not an object")
    return reply


def _content(fd: int) -> bytes:
    with open(fd, "rb") as file:
        if fcntl.fcntl(fd, _GET_SEALS) & _SEALS != _SEALS or os.fstat(fd).st_size > LARGEST_OBJECT:
            raise ProtocolError("a packet of the session is not sealed, or too long")
        file.seek(0)
        return file.read()
