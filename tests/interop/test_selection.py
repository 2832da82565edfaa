"""Compares RocketMQ's choice of a queue for a send with pyrocket's, on random input."""

from random import Random

from interop.programs import encode, run
from pyrocket.client.selection import FaultTable, RoundRobin, by_hash, choose_queue, unavailable_ms
from pyrocket.values.message import MessageQueue

TEXTS = ["", "o-1", "customer 7", "中文", "\U0001f680 rocket", "é" * 300]
NOW = 1000


def ask(java, lines):
    """Return RocketMQ's answers, each a list of numbers."""
    return [list(map(int, line.split())) for line in run(java.classes, "Selection", lines)]


def different(java, cases):
    """Return the cases, pairs of a line and our answer, that RocketMQ answers differently."""
    answers = ask(java, [line for line, _ in cases])
    pairs = zip(cases, answers, strict=True)
    return [(line, own, answer) for (line, own), answer in pairs if own != answer]


def choices(random, kind):
    """Return a line with random brokers, and our choice of queues."""
    start, picks = random.randrange(-(1 << 31), 1 << 31), 12
    ends = random.choice([[""], ["", "-"], ["", "-", "--"], ["--"]]) if kind == "faults" else [""]
    brokers = [random.choice("abc") + random.choice(ends) for _ in range(random.randint(1, 9))]
    last = random.choice([None, *brokers, "unknown"])
    line = f"{kind} {start} {picks} {last or '-'} {' '.join(brokers)}"
    faults = FaultTable()
    for broker in brokers:
        failed, reachable = broker.endswith("-"), not broker.endswith("--")
        faults.record(broker, 1, NOW, failed=failed, reachable=reachable)
    queues = [MessageQueue("t", broker, number) for number, broker in enumerate(brokers)]
    position, table = RoundRobin(start), faults if kind == "faults" else None
    chosen = [
        choose_queue(queues, position, last_broker=last, faults=table, now_ms=NOW)
        for _ in range(picks)
    ]
    return line, [queue.queue_id for queue in chosen]


def test_queues_take_turns_as_in_rocketmq(java_version):
    random = Random(18)
    kinds = ["round", "faults"] if java_version.is_5 else ["round"]
    assert not different(java_version, [choices(random, kind) for kind in kinds * 2000])


def test_slow_brokers_are_avoided_as_long_as_by_rocketmq(java_version):
    latencies = [*range(0, 3100, 7), *range(3100, 40000, 50), 50, 100, 550, 1800, 3000, 5000, 15000]
    cases = [(f"latency {latency}", [unavailable_ms(latency)]) for latency in latencies]
    assert not java_version.is_5 or not different(java_version, cases)


def test_hashed_arguments_select_rocketmqs_queue(java_version):
    random, cases = Random(9), []
    for _ in range(1000):
        text = random.choice(TEXTS) + str(random.randrange(10**6))
        integer = random.randrange(-(1 << 31), 1 << 31)
        long = random.choice([random.randrange(1 << 63), random.randrange(-(1 << 63), -(1 << 31))])
        words = ("String", encode(text)), ("Integer", integer)
        for (kind, word), argument in zip(
            [*words, ("Long", long)], [text, integer, long], strict=True
        ):
            count = random.randint(1, 40)
            queues = [MessageQueue("t", "b", number) for number in range(count)]
            own = by_hash(queues, None, argument).queue_id
            cases.append((f"hash {count} {kind} {word}", [own]))
    assert not different(java_version, cases)
