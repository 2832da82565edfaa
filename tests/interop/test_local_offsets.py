"""RocketMQ's consumers and pyrocket's continue broadcast consumption from each other's files."""

import asyncio
from random import Random

from interop.programs import encode, run
from pyrocket.client.local_offsets import LocalOffsets
from pyrocket.values.consuming import GroupPosition
from pyrocket.values.message import MessageQueue

CLIENT, GROUP = "10.0.0.7@DEFAULT", "news"
TOPICS = ["orders", "a-b_c|d%e", "%RETRY%news"]
BROKERS = ["broker-a", "broker b", 'quoted "b"', "中文"]


def random_offsets(random):
    """Return offsets of random queues."""
    return {
        MessageQueue(random.choice(TOPICS), random.choice(BROKERS), random.randrange(4)): (
            random.choice([0, 7, (1 << 31) + 5, (1 << 62) + 1])
        )
        for _ in range(random.randint(1, 9))
    }


def java_line(verb, folder, words):
    start = [encode(str(folder)), encode(CLIENT), encode(GROUP)]
    return " ".join([verb, *start, *words])


def words_of(queue):
    return [encode(queue.topic), encode(queue.broker), str(queue.queue_id)]


def save_by_java(java, folder, offsets):
    words = [word for queue in offsets for word in [*words_of(queue), str(offsets[queue])]]
    run(java.classes, "LocalOffsets", [java_line("save", folder, words)])


def read_by_java(java, folder, queues):
    words = [word for queue in queues for word in words_of(queue)]
    (answer,) = run(java.classes, "LocalOffsets", [java_line("read", folder, words)])
    return dict(zip(queues, map(int, answer.split()), strict=True))


class NoBroker:
    """The transport of a consumer that has stored no start."""

    async def start_offset(self, group, queue, start):
        return GroupPosition(None)


def read(folder, queues):
    async def load():
        ours = LocalOffsets(CLIENT, GROUP, NoBroker(), folder)
        return {queue: (await ours.start(queue)).offset for queue in queues}

    return asyncio.run(load())


def save(folder, offsets):
    positions = {queue: GroupPosition(offset) for queue, offset in offsets.items()}
    asyncio.run(LocalOffsets(CLIENT, GROUP, NoBroker(), folder).save(positions))


def test_each_side_continues_from_the_offsets_that_the_other_has_saved(java_version, tmp_path):
    random = Random(18)
    known, unknown = {}, MessageQueue("orders", "no such broker", 0)
    for _ in range(4):
        for write in (save, lambda *args: save_by_java(java_version, *args)):
            offsets = random_offsets(random)
            write(tmp_path, offsets)
            known |= offsets
            assert read(tmp_path, known) == known
            assert read_by_java(java_version, tmp_path, [*known]) == known
    assert read(tmp_path, [unknown]) == {unknown: None}
    assert read_by_java(java_version, tmp_path, [unknown]) == {unknown: -1}
