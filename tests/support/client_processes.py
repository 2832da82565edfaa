"""Processes that produce and consume: `python client_processes.py ROLE ENDPOINT FILE [OPTIONS]`.

A consumer appends `queue body` to the file for each message, a producer the body of each
acknowledged message.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

from pyrocket import Message
from pyrocket.client import ConsumeResult, Producer, PushConsumer
from pyrocket.errors import PyrocketError

TOPIC, GROUP = "orders", "billing"


def start(role, endpoint, file, **options):
    """Start a process."""
    command = [sys.executable, __file__, role, endpoint, str(file), json.dumps(options)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with Path(f"{file}.log").open("w") as log:
        return subprocess.Popen(command, env=environment, stderr=log)


def stop(process):
    """Stop a process gracefully, and check that it ended without an error."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def lines(file):
    return file.read_text().splitlines() if file.exists() else []


def consumed(files):
    """Return body → number of times that it was consumed."""
    return Counter(line.split()[1] for file in files for line in lines(file))


def consume(endpoint, file, options):
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    output = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def listen(messages):
        text = "".join(f"{one.queue_id} {one.body.decode()}\n" for one in messages)
        os.write(output, text.encode())
        return ConsumeResult.SUCCESS

    settings = {"subscriptions": {TOPIC: "*"}, "consume_from": "first", **options}
    with PushConsumer(GROUP, endpoint=endpoint, listener=listen, **settings):
        Path(f"{file}.started").touch()
        ended.wait()


def produce(endpoint, file, options):
    output = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    with Producer(endpoint=endpoint, timeout_ms=20_000) as producer:
        for start_at in range(0, options["count"], options["batch"]):
            bodies = [str(number) for number in range(start_at, start_at + options["batch"])]
            if sent(producer, bodies):
                os.write(output, "".join(f"{body}\n" for body in bodies).encode())


def sent(producer, bodies):
    """Send a batch; whether it was acknowledged."""
    try:
        producer.send_batch([Message(topic=TOPIC, body=body.encode()) for body in bodies])
    except PyrocketError as error:
        sys.stderr.write(f"{error}\n")
        return False
    return True


if __name__ == "__main__":
    _, role, where, path, given = sys.argv
    {"consume": consume, "produce": produce}[role](where, path, json.loads(given))
