"""The world outside: a network namespace with every address that a test dials, servers that count, and a name server.

Commands on standard input, one a line: "said" prints {"came": {address: connections}, "asked": [names]} and forgets them.
"""

import json
import os
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler

PUBLIC, OTHER = "203.0.113.10", "203.0.113.11"
INNER = ["10.0.0.5", "10.0.0.6", "100.100.100.200", "169.254.169.254", "192.0.0.192", "168.63.129.16"]
SERVER = "203.0.113.53"
SIX = ["2001:db8::10", "fd00:ec2::254"]

came, asked, lock = {}, [], threading.Lock()


def ip(*words):
    return subprocess.run(["ip", *words], stderr=subprocess.DEVNULL).returncode == 0


ip("link", "set", "lo", "up")
for address in [PUBLIC, OTHER, SERVER, *INNER]:
    assert ip("addr", "add", f"{address}/32", "dev", "lo"), address
has_six = all([ip("addr", "add", f"{address}/128", "dev", "lo", "nodad") for address in SIX])
# Whatever has no route otherwise answers here, too: a canary for addresses that nobody thought of.
ip("route", "add", "local", "192.0.2.0/24", "dev", "lo")


class Counting:
    """Counts a connection by the address that it came to."""

    def setup(self):
        super().setup()
        host, port = self.request.getsockname()[:2]
        with lock:
            key = f"{host}:{port}"
            came[key] = came.get(key, 0) + 1


class Web(Counting, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path.startswith("/big/"):
            size = int(self.path[5:])
            self.send_response(200)
            self.send_header("Content-Length", str(size))
            self.end_headers()
            block = bytes(1 << 16)
            while size > 0:
                size -= self.wfile.write(block[: min(size, len(block))])
            return
        text = f"{self.request.getsockname()[0]} {self.headers['Host']} {self.path}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self):
        got = len(self.rfile.read(int(self.headers["Content-Length"])))
        text = f"{got}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class First(Counting, socketserver.BaseRequestHandler):
    """The server speaks first, then says in upper case what it got when the client has no more."""

    def handle(self):
        self.request.sendall(b"READY\n")
        got = b""
        while part := self.request.recv(65536):
            got += part
        self.request.sendall(got.upper())
        with lock:
            came["first:" + got.decode("latin-1")[:40]] = len(got)


class Endless(Counting, socketserver.BaseRequestHandler):
    """Sends for ever."""

    def handle(self):
        try:
            while True:
                self.request.sendall(bytes(1 << 16))
        except OSError:
            pass


class Silent(Counting, socketserver.BaseRequestHandler):
    """Says nothing, and reads nothing."""

    def handle(self):
        time.sleep(120)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 4096

    def handle_error(self, *_):
        pass


class Server6(Server):
    address_family = socket.AF_INET6


def serve(kind, address, port, context=None):
    server = (Server6 if ":" in address else Server)((address, port), kind)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()


# Answers by name; a list of lists is used up one by one, and the last stays.
ZONE = {
    "api.example.com": [[PUBLIC]],
    "other.example.com": [[OTHER]],
    "deep.a.cdn.example.com": [[PUBLIC]],
    "secret.cdn.example.com": [[PUBLIC]],
    "six.example.com": [["2001:db8::10"]],
    "private.example.com": [["10.0.0.5"]],
    "loopback.example.com": [["127.0.0.1"]],
    "metadata.example.com": [["169.254.169.254"]],
    "alibaba.example.com": [["100.100.100.200"]],
    "oracle.example.com": [["192.0.0.192"]],
    "azure.example.com": [["168.63.129.16"]],
    "unspecified.example.com": [["0.0.0.0"]],
    "multicast.example.com": [["224.0.0.1"]],
    "broadcast.example.com": [["255.255.255.255"]],
    "synthetic.example.com": [["198.18.0.1"]],
    "loopback6.example.com": [["::1"]],
    "mapped.example.com": [["::ffff:127.0.0.1"]],
    "mappedpublic.example.com": [["::ffff:203.0.113.10"]],
    "nat64.example.com": [["64:ff9b::7f00:1"]],
    "amazon6.example.com": [["fd00:ec2::254"]],
    "linklocal6.example.com": [["fe80::1"]],
    "rebinding.example.com": [[PUBLIC], ["10.0.0.5"]],
    "both.example.com": [["10.0.0.5", PUBLIC, "169.254.169.254"]],
    "alias.example.com": [["@api.example.com"]],
    "big.example.com": [["%"]],
    "nowhere.example.com": [["192.0.2.9"]],
}
turn = {}


def encode(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"


def answer(packet, tcp):
    at, labels = 12, []
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode("latin-1"))
        at += 1 + packet[at]
    kind = struct.unpack(">H", packet[at + 1 : at + 3])[0]
    question = packet[12 : at + 5]
    name = ".".join(labels).lower()
    with lock:
        asked.append(name)
        answers = ZONE.get(name)
        index = turn.get((name, kind), 0)
        turn[(name, kind)] = index + 1
    if answers is None:
        return packet[:2] + b"\x81\x83" + b"\0\1\0\0\0\0\0\0" + question
    records, owner = [], b"\xc0\x0c"
    for one in answers[min(index, len(answers) - 1)]:
        if one == "%":  # does not fit a datagram
            if not tcp:
                return packet[:2] + b"\x83\x80" + b"\0\1\0\0\0\0\0\0" + question
            one = PUBLIC
        if one.startswith("@"):
            target = encode(one[1:])
            records.append(owner + struct.pack(">HHIH", 5, 1, 60, len(target)) + target)
            owner, one = target, PUBLIC
        family = socket.AF_INET6 if ":" in one else socket.AF_INET
        if kind == (28 if ":" in one else 1):
            data = socket.inet_pton(family, one)
            records.append(owner + struct.pack(">HHIH", kind, 1, 0, len(data)) + data)
    return packet[:2] + b"\x81\x80" + struct.pack(">HHHH", 1, len(records), 0, 0) + question + b"".join(records)


class Datagram(socketserver.BaseRequestHandler):
    def handle(self):
        self.request[1].sendto(answer(self.request[0], False), self.client_address)


class Stream(socketserver.BaseRequestHandler):
    def handle(self):
        length = struct.unpack(">H", self.request.recv(2))[0]
        reply = answer(self.request.recv(length), True)
        self.request.sendall(struct.pack(">H", len(reply)) + reply)


threading.Thread(target=socketserver.ThreadingUDPServer((SERVER, 53), Datagram).serve_forever, daemon=True).start()
serve(Stream, SERVER, 53)
for address in [PUBLIC, OTHER, *INNER, "127.0.0.1", *(SIX if has_six else [])]:
    serve(Web, address, 80)
serve(Web, PUBLIC, 8080)
serve(First, PUBLIC, 22)
serve(Endless, PUBLIC, 19)
serve(Silent, PUBLIC, 9)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(os.path.join(sys.argv[1], "both.pem"))
serve(Web, PUBLIC, 443, context)
print("ready six" if has_six else "ready", flush=True)
for line in sys.stdin:
    time.sleep(0.05)
    with lock:
        print(json.dumps({"came": came, "asked": asked}), flush=True)
        came.clear()
        asked.clear()
