"""What rules for hosts are attacked with: a resolver that answers everything, a server of inner addresses, and one of TLS. Each
tells when something arrives that no rule allows."""

import socket
import struct
import threading

PUBLIC, RESOLVER, INNER_PORT, TLS_PORT, NETWORK_PORT = "203.0.113.10", ("203.0.113.53", 5354), 8081, 8443, 8082
# The rules of every run that is attacked; names below example.org lead where their owner likes. The network takes its port on
# every address of the sandbox, so that connections to the names arrive there, too.
RULES = [f"api.example.com:{TLS_PORT}", f"*.example.org:{INNER_PORT}", f"198.51.100.0/24:{NETWORK_PORT}"]
OPTIONS = [*(word for rule in RULES for word in ("--allow-net", rule)), "--dns", "%s:%s" % RESOLVER]
# A list of lists is used up one by one; the last stays.
ZONE = {
    "api.example.com": [[PUBLIC]],
    "metadata.example.org": [["169.254.169.254"]],
    "alibaba.example.org": [["100.100.100.200"]],
    "mapped-metadata.example.org": [["::ffff:169.254.169.254"]],
    "loopback.example.org": [["127.0.0.1"]],
    "loopback6.example.org": [["::1"]],
    "mapped.example.org": [["::ffff:127.0.0.1"]],
    "private.example.org": [["10.0.0.5"]],
    "rebinding.example.org": [[PUBLIC], ["10.0.0.5"]],
    "two.example.org": [["10.0.0.5", PUBLIC]],
}


class Outside:
    def __init__(self):
        self.songs, self.turn = [], {}
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(RESOLVER)
        self.start(self.datagrams, udp)
        self.serve(socket.AF_INET, RESOLVER, self.question)
        self.serve(socket.AF_INET6, ("::", INNER_PORT), self.inner)
        self.serve(socket.AF_INET, (PUBLIC, TLS_PORT), self.tls)
        self.serve(socket.AF_INET, (PUBLIC, NETWORK_PORT), self.network)

    def heard(self):
        """What arrived since the last call."""
        songs, self.songs = self.songs, []
        return sorted(set(songs))

    @staticmethod
    def start(function, *arguments):
        threading.Thread(target=function, args=arguments, daemon=True).start()

    def serve(self, family, address, handler):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.listen(256)

        def one(connection):
            try:
                connection.settimeout(5)
                handler(connection)
            except OSError:
                pass
            connection.close()

        def accept():
            while True:
                self.start(one, listener.accept()[0])

        self.start(accept)

    def inner(self, connection):
        address = connection.getsockname()[0].removeprefix("::ffff:")
        if address != PUBLIC:  # which a name may lead to
            self.songs.append(f"connected: {address}")
            connection.sendall(b"k")

    def tls(self, connection):
        if connection.recv(4096):
            self.songs.append("a ClientHello for another host arrived")
            connection.sendall(b"k")

    def network(self, connection):
        self.songs.append("connected: a port that no rule for this name has")
        connection.sendall(b"k")

    def datagrams(self, udp):
        while True:
            packet, client = udp.recvfrom(4096)
            udp.sendto(self.answer(packet), client)

    def question(self, connection):
        length = struct.unpack(">H", connection.recv(2, socket.MSG_WAITALL))[0]
        reply = self.answer(connection.recv(length, socket.MSG_WAITALL))
        connection.sendall(struct.pack(">H", len(reply)) + reply)

    def answer(self, packet):
        at, labels = 12, []
        while at < len(packet) and packet[at]:
            labels.append(packet[at + 1 : at + 1 + packet[at]].decode("latin-1"))
            at += 1 + packet[at]
        kind, question = struct.unpack(">H", packet[at + 1 : at + 3])[0], packet[12 : at + 5]
        name = ".".join(labels).lower()
        if name not in ZONE:
            self.songs.append("a question for another name was asked")
        answers = ZONE.get(name, [[PUBLIC]])
        turn = self.turn[(name, kind)] = self.turn.get((name, kind), -1) + 1
        records = []
        for address in answers[min(turn, len(answers) - 1)]:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            if kind == (28 if ":" in address else 1):
                data = socket.inet_pton(family, address)
                records.append(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(data)) + data)
        return packet[:2] + b"\x81\x80" + struct.pack(">HHHH", 1, len(records), 0, 0) + question + b"".join(records)
