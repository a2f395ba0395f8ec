"""The part of a Container Runtime Interface client that the scenarios need.

Debian has no crictl in this release, and generated code would need the whole definition: messages are lists of
(field number, value) here, written and read by hand, and go through Debian's python3-grpcio."""


def encode(fields):
    """A message of (number, value) pairs: whole numbers, texts, bytes, or messages as lists; None is left out."""
    out = b""
    for number, value in fields:
        if value is None:
            continue
        if isinstance(value, (bool, int)):
            out += varint(number << 3) + varint(int(value) & (1 << 64) - 1)
            continue
        if isinstance(value, list):
            value = encode(value)
        elif isinstance(value, str):
            value = value.encode()
        out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def varint(number):
    """A whole number as protocol buffers write it."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def decode(data):
    """A message as {field number: [values]}; nested messages stay bytes."""
    fields, at = {}, 0

    def take():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = take()
        kind = key & 7
        if kind == 0:
            value = take()
        else:
            size = {1: 8, 5: 4}.get(kind) or take()
            value, at = data[at:at + size], at + size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def pair(key, value):
    """An entry of a map."""
    return [(1, key), (2, value)]


class Client:
    """Calls by name; errors are raised as grpc.RpcError."""

    def __init__(self, socket):
        import grpc

        self.grpc = grpc
        self.channel = grpc.insecure_channel(f"unix://{socket}")

    def call(self, service, method, fields, timeout):
        """One call: a message in, the decoded message back."""
        stub = self.channel.unary_unary(f"/runtime.v1.{service}/{method}", request_serializer=encode, response_deserializer=decode)
        return stub(fields, timeout=timeout)
