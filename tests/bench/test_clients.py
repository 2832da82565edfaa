"""Producers and consumers of `pyrocket.client`, beside RocketMQ's own Python client."""

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import pytest
from bench.client_rates import BODY, TOPIC
from pyrocket import Message, Store
from pyrocket.client import ConsumeResult, PushConsumer
from support import broker_process, rocketmq_python

TESTS = Path(__file__).resolve().parent.parent


def rate(program, where, count, batch):
    """Run a program of `bench.client_rates`; return messages per second."""
    paths = os.pathsep.join([os.environ["PYTHONPATH"], str(TESTS)])
    command = ["bench.client_rates", program, where, count, batch]
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def filled(path, count):
    with Store.open(path, create=True) as store:
        store.topics.create(TOPIC, read_queues=4, write_queues=4)
        for group in ("push", "pull", "official"):
            store.groups.create(group)
        for number in range(count):
            store.append(Message(topic=TOPIC, body=BODY, queue_id=number % 4))
    return path


def reset(path):
    """Let the groups begin again."""
    with Store.open(path) as store:
        for group in ("push", "pull"):
            store.groups.delete(group)
            store.groups.create(group)


def test_consumers_of_a_store_in_the_same_process(fast_disk, large, report):
    count, rounds = (40_000, 3) if large else (200, 1)
    path, rates = filled(fast_disk / "s", count), {}
    for _ in range(rounds):
        for name, program, batch in (
            ("push consumer, 32 messages a call", "push", 32),
            ("push consumer, 1 message a call", "push", 1),
            ("pull consumer, polls of 32", "pull", 32),
        ):
            rates.setdefault(name, []).append(rate(program, path, count, batch))
            reset(path)
    for name, found in rates.items():
        report.line(f"{name}, 1 KiB: {median(found):,.0f} messages/s")
    if large:
        assert median(rates["push consumer, 32 messages a call"]) >= 20_000


@pytest.mark.skipif(find_spec("rocketmq") is None, reason="needs rocketmq-python-client: .[dev]")
def test_clients_of_a_broker_beside_the_official_client(fast_disk, tmp_path, large, report):
    count, few = (20_000, 2_000) if large else (200, 20)
    path = filled(fast_disk / "s", count)
    with broker_process.running(path) as (_, found):
        (address,) = found.listen
        push = rate("push", address, count, 32)
        pull = rate("pull", address, count, 32)
        sent = rate("send", address, count, 100)
        official = {
            name: rocketmq_python.result(
                rocketmq_python.start(name, address, tmp_path, count=few, group="official")
            )
            for name in ("push_rate", "send_rate")
        }
    report.line(
        f"over gRPC, 1 KiB, messages/s: push {push:,.0f}, pull {pull:,.0f}, official push"
        f" {official['push_rate']:,.0f}; batches of 100 {sent:,.0f}, official sends"
        f" {official['send_rate']:,.0f}"
    )
    if large:
        assert push >= 3 * official["push_rate"]
        assert push >= 0.4 * pull
        assert sent >= 3 * official["send_rate"]


def test_a_rebalance_of_many_queues_over_many_members(fast_disk, large, report):
    queues, members = (64, 16) if large else (4, 2)
    with Store.open(fast_disk / "s", create=True) as store:
        store.topics.create(TOPIC, read_queues=queues, write_queues=queues)
    with broker_process.running(fast_disk / "s") as (_, found):
        (address,) = found.listen
        running = [member(address, number) for number in range(members)]
        for one in running:
            one.start()
        until(lambda: owned(running) == queues)
        running.pop().close()
        began = time.perf_counter()
        until(lambda: owned(running) == queues)
        seconds = time.perf_counter() - began
        for one in running:
            one.close()
    report.line(f"{queues} queues, {members} members: all owned {seconds:.2f} s after one has left")


def member(address, number):
    return PushConsumer(
        "push",
        endpoint=address,
        instance=str(number),
        subscriptions={TOPIC: "*"},
        listener=lambda messages: ConsumeResult.SUCCESS,
        thread_max=1,
    )


def owned(members):
    """Return the number of queues with exactly one owner."""
    held = [queue for one in members for queue in one.queues() if queue.topic == TOPIC]
    return len(held) if len(held) == len({*held}) else 0


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
