"""A client of the session protocol: many commands at once over one connection."""
import array
import fcntl
import json
import os
import socket
import struct
import sys
import termios


class Session:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.socket.settimeout(60)  # a session that does not answer fails the test
        self.next = 0
        hello, _ = self.receive()
        assert hello["protocol"] == "stockade/session/v1", hello

    def send(self, op, fds=(), **fields):
        self.next += 1
        packet = json.dumps({"id": self.next, "op": op, **fields}).encode()
        if len(packet) > 65536:
            file = os.memfd_create("packet", os.MFD_ALLOW_SEALING)
            os.write(file, packet)
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
            packet, fds = b'{"in_memfd":true}', (file, *fds)
        socket.send_fds(self.socket, [packet], fds)
        return self.next

    def receive(self):
        packet, fds, flags, _ = socket.recv_fds(self.socket, 65536, 8)
        assert not flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC)
        if not packet:
            raise EOFError
        message = json.loads(packet)
        if message.get("in_memfd"):
            with open(fds.pop(0), "rb") as file:
                file.seek(0)
                message = json.load(file)
        return message, fds

    def ask(self, op, **fields):
        id = self.send(op, **fields)
        while True:
            reply, _ = self.receive()
            if reply["id"] == id and reply["event"] != "started":
                return reply


session = Session(sys.argv[1])
assert session.ask("ping")["event"] == "done"

# Forty commands at once, each with its own pipe.
null = os.open("/dev/null", os.O_RDWR)
outputs = {}
for number in range(40):
    read, write = os.pipe()
    id = session.send("run", (null, write, null), argv=["sh", "-c", f"echo {number}; exit {number}"])
    os.close(write)
    outputs[id] = (read, number)
while outputs:
    reply, _ = session.receive()
    assert reply["event"] in ("started", "done"), reply
    if reply["event"] == "done":
        read, number = outputs.pop(reply["id"])
        assert os.read(read, 100) == f"{number}\n".encode()
        assert reply["report"]["exit_code"] == number, reply
        os.close(read)

# A request that does not fit into a packet.
read, write = os.pipe()
id = session.send("run", (null, write, null), argv=["sh", "-c", "echo $#", "sh"] + ["x" * 100] * 1000)
os.close(write)
assert os.read(read, 100) == b"1000\n"
while session.receive()[0]["event"] != "done":
    pass

# A terminal.
id = session.send("run", argv=["sh", "-c", "stty size; read a; echo got $a"], tty={"rows": 12, "columns": 34})
reply, (master,) = session.receive()
assert reply["event"] == "started" and reply["pid"] > 1, reply
os.write(master, b"hello\n")
shown = b""
while b"got hello" not in shown:
    shown += os.read(master, 1000)
assert b"12 34" in shown, shown
while session.receive()[0]["event"] != "done":
    pass

# Every mistake is named, and the connection stays.
for fields, named in [
    (dict(op="runn"), "op"),
    (dict(op="run", argv=["true"], timeout=1), "timeout"),
    (dict(op="run", argv=["true"], timeout_us="1"), "timeout_us"),
    (dict(op="signal", command="c999999", signal=9), "command"),
    (dict(op="run", argv=["true"]), "descriptors"),
]:
    reply = session.ask(**fields)
    assert reply["event"] == "error" and reply["error"]["object"] == named and reply["exit_code"] == 125, reply
status = session.ask("status")["status"]
assert len(status["ended"]) == 42 and status["running"] == [], status
print("ok")
