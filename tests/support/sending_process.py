"""Sends messages one after the other until its standard input ends; prints what each took, after a
line when the first one is stored.

    python -m support.sending_process ADDRESS [USER SECRET]

A process of its own, so that the threads of a test do not slow it down.
"""

import json
import sys
import threading
import time

from pyrocket.base.credentials import sign

from support.rocketmq_stub import Stub, code_of

PAUSE_S = 0.05


def main(address, user="", secret=""):
    stub, codes, took_s = Stub(address, "sender"), set(), []
    plain, ended = stub.metadata, threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.wait(PAUSE_S):
        began = time.monotonic()
        stub.metadata = (*plain, *(sign(user, secret) if user else ()))
        codes.add(code_of(stub.send(b"1", topic="sent")))
        took_s.append(time.monotonic() - began)
        if len(took_s) == 1:
            sys.stdout.write("\n")
            sys.stdout.flush()
    sys.stdout.write(json.dumps({"codes": sorted(codes), "took_s": took_s}))


if __name__ == "__main__":
    main(*sys.argv[1:])
