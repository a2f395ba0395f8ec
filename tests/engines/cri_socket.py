"""The streams of `kubectl exec`, `attach` and `port-forward`: containerd answers with a URL, which is a WebSocket here (RFC 6455)
with Kubernetes' numbered channels. The first byte of every message is the channel."""

import base64
import json
import os
import socket
import struct
import time
import urllib.parse

from scenario import PATIENCE, Failed

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)


class Streams:
    """A connection to such a URL, and what came from each channel."""

    def __init__(self, url, query=""):
        parts = urllib.parse.urlsplit(url)
        self.connection = socket.create_connection((parts.hostname, parts.port), timeout=10 * PATIENCE)
        self.connection.sendall((
            f"GET {parts.path}{query} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: v4.channel.k8s.io\r\nOrigin: http://{parts.netloc}\r\n\r\n").encode())
        self.received, self.channels, self.open = b"", {}, True
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = self.connection.recv(4096)
            if not more:
                raise Failed(f"no streams at {url}: {answer!r}")
            answer += more
        head, self.received = answer.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.splitlines()[0]:
            raise Failed(f"no streams at {url}: {head!r} {self.received!r}")

    def send(self, channel, data):
        """A message to a channel, masked as a client has to."""
        self.frame(2, bytes([channel]) + data)

    def frame(self, kind, data):
        size = bytes([128 | len(data)]) if len(data) < 126 else bytes([254]) + struct.pack(">H", len(data))
        mask = os.urandom(4)
        self.connection.sendall(bytes([128 | kind]) + size + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)))

    def receive(self, size):
        """This many bytes; none at the end."""
        while len(self.received) < size:
            try:
                more = self.connection.recv(65536)
            except TimeoutError:
                raise
            except ConnectionError:
                more = b""
            if not more:
                self.open = False
                return b""
            self.received += more
        data, self.received = self.received[:size], self.received[size:]
        return data

    def step(self, timeout):
        """Reads one message. Nothing happens if none comes within the time."""
        self.connection.settimeout(timeout)
        try:
            head = self.receive(2)
        except TimeoutError:
            return
        if not head:
            return
        self.connection.settimeout(10 * PATIENCE)
        kind, size = head[0] & 15, head[1] & 127
        if size > 125:
            size = int.from_bytes(self.receive({126: 2, 127: 8}[size]), "big")
        data = self.receive(size) if size else b""
        if kind == 8:
            self.open = False
        elif kind == 9:
            self.frame(10, data)
        elif kind in (0, 1, 2) and data:
            self.channels[data[0]] = self.channels.get(data[0], b"") + data[1:]

    def until(self, channel, text, timeout=10):
        """Reads until a channel has said this."""
        deadline = time.monotonic() + timeout * PATIENCE
        while text not in self.said(channel):
            if not self.open or time.monotonic() > deadline:
                raise Failed(f"channel {channel} never said {text!r}: {self.channels}")
            self.step(0.2)
        return self.said(channel)

    def end(self, timeout=10):
        """Reads to the end: the exit code, as the last message on the channel for errors tells it."""
        deadline = time.monotonic() + timeout * PATIENCE
        while self.open:
            if time.monotonic() > deadline:
                raise Failed(f"the streams do not end: {self.channels}")
            self.step(0.2)
        self.close()
        status = json.loads(self.said(ERROR) or "{}")
        if status.get("status") == "Success":
            return 0
        causes = {cause.get("reason"): cause.get("message") for cause in status.get("details", {}).get("causes", [])}
        return int(causes["ExitCode"]) if "ExitCode" in causes else status.get("message", "no status")

    def said(self, channel):
        return self.channels.get(channel, b"").decode(errors="replace")

    def resize(self, width, height):
        self.send(RESIZE, json.dumps({"Width": width, "Height": height}).encode())

    def close(self):
        self.open = False
        self.connection.close()
