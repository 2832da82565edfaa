"""Frames of RocketMQ's remoting protocol as its servers send them, for the fake cluster.

Both encodings are written here by the layout of `RocketMQSerializable`, apart from the product.
"""

import base64
import hashlib
import hmac
import json
import struct

JAVA = 0


def json_frame(code, opaque, fields=None, body=b"", remark=None, flag=1, version=409):
    header = {"code": code, "flag": flag, "language": "JAVA", "opaque": opaque}
    header |= {"serializeTypeCurrentRPC": "JSON", "version": version}
    header |= {"extFields": fields} if fields else {}
    header |= {"remark": remark} if remark else {}
    return framed(0, json.dumps(header, separators=(",", ":")).encode(), body)


def binary_frame(code, opaque, fields=None, body=b"", remark=None, flag=1, version=409):
    pairs = b"".join(
        struct.pack(">h", len(name.encode())) + name.encode() + counted(value)
        for name, value in (fields or {}).items()
    )
    header = struct.pack(">hBhii", code, JAVA, version, opaque, flag)
    header += counted(remark or "") + struct.pack(">i", len(pairs)) + pairs
    return framed(1, header, body)


def counted(text):
    return struct.pack(">i", len(text.encode())) + text.encode()


def framed(kind, header, body):
    size = 4 + len(header) + len(body)
    return struct.pack(">iI", size, kind << 24 | len(header)) + header + bytes(body)


def signature(secret, fields, body):
    """Return the signature of a request, as the server computes it."""
    values = [fields[name] for name in sorted(fields) if name != "Signature"]
    content = "".join(values).encode() + bytes(body)
    return base64.b64encode(hmac.new(secret.encode(), content, hashlib.sha1).digest()).decode()


def batch_of(messages):
    """Return the body of a batch of (body, properties) pairs: `MessageDecoder.encodeMessage`."""
    return b"".join(map(batch_item, *zip(*messages, strict=True)))


def batch_item(body, properties):
    block = properties.encode()
    size = 22 + len(body) + len(block)
    head = struct.pack(">iiiii", size, 0, 0, 0, len(body))
    return head + body + struct.pack(">h", len(block)) + block


def items_of(batch):
    """Yield the flag, the body and the properties of each message of a batch."""
    at = 0
    while at < len(batch):
        _, _, _, flag, size = struct.unpack_from(">iiiii", batch, at)
        body = bytes(batch[at + 20 : at + 20 + size])
        at += 20 + size
        (length,) = struct.unpack_from(">h", batch, at)
        yield flag, body, str(batch[at + 2 : at + 2 + length], "utf-8")
        at += 2 + length
