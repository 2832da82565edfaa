"""RocketMQ and pyrocket encode and decode message traces alike.

RocketMQ's encoder and decoder are called for random records. A RocketMQ broker finds the traces
that a pyrocket broker has written.
"""

import base64
import json
import random
import subprocess

from interop.rocketmq import SMALL
from interop.stores_of_ours import SIZES
from pyrocket import Store
from pyrocket.formats.system_topics import TRACE_TOPIC
from pyrocket.formats.trace import (
    EndTransaction,
    Pub,
    SubAfter,
    SubBefore,
    decode,
    encode,
    trace_keys,
)
from support.broker import served
from support.rocketmq_stub import Stub

KINDS = (Pub, SubBefore, SubAfter, EndTransaction)
STATES = ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW")
TEXTS = ("", "a", "order-17", "k1 k2 k3", "x" * 300, "Grüße", "消息", "😀", "a,b|c\n\x03")


def random_trace(source, kind):
    fields = {name: random_value(source, name, of) for name, of in kind.__annotations__.items()}
    return kind(**fields)


def random_value(source, name, kind):
    if name == "message_type":
        return source.randrange(4)
    if name == "state":
        return source.choice(STATES)
    if kind is bool:
        return source.random() < 0.5
    if kind is int:
        return source.choice([0, 1, source.randrange(2**31), 2**31 - 1])
    text = source.choice(TEXTS)
    if name == "message_id":
        return text.replace(" ", "")
    # RocketMQ's decoder needs a value in the last field of each record.
    return text or (None if name in ("tags", "keys") else "g" if name == "group" else "")


def ask(classes, bodies):
    """Return, for each record, the fields as texts, the body that Java encodes, and the keys."""
    lines = [base64.b64encode(body.encode()).decode() for body in bodies]
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", classes, "Trace"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    answers = done.stdout.removesuffix("\n\n").split("\n\n")
    return [[words(line) for line in answer.splitlines()] for answer in answers]


def words(line):
    return [base64.b64decode(word).decode() for word in line.split(",")]


def as_texts(trace):
    values = [json.dumps(one) if one in (None, True, False) else str(one) for one in trace]
    return [type(trace).__name__, *values]


def test_rocketmq_and_pyrocket_decode_and_encode_the_same_traces(java_version):
    source = random.Random(17)
    bodies = [
        [random_trace(source, source.choice(KINDS)) for _ in range(source.randrange(1, 9))]
        for _ in range(500)
    ]
    answers = ask(java_version.classes, ["".join(map(encode, body)) for body in bodies])
    assert len(answers) == len(bodies)
    for body, answer in zip(bodies, answers, strict=True):
        assert len(answer) == len(body)
        for trace, fields in zip(body, answer, strict=True):
            count = 1 + len(trace)
            assert fields[:count] == as_texts(trace)
            assert fields[count] == encode(trace)
            assert decode(fields[count]) == [trace]
            assert {*fields[count + 1 :]} - {"", "null"} == {*trace_keys(trace)}


def test_rocketmq_finds_and_decodes_the_traces_of_a_pyrocket_broker(java, store_path):
    """The query and the decoder are those of mqadmin's `queryMsgTraceById`."""
    with served(Store.open(store_path, create=True, config=SIZES), trace=True) as address:
        stub = Stub(address)
        for one in ("ID1", "ID2"):
            stub.send(b"apples", message_id=one, keys=[f"key-of-{one}"])
        stub.close()
    with java.broker(store_path, **SMALL) as broker:
        for key, message_id in (("ID1", "ID1"), ("key-of-ID2", "ID2")):
            (found,) = broker.query(TRACE_TOPIC, key)
            body = base64.b64decode(found["body"]).decode()
            (answer,) = ask(java.classes, [body])
            assert [fields[0] for fields in answer] == ["Pub"] * len(answer)
            assert message_id in {fields[5] for fields in answer}
