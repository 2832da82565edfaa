"""The members of the group in `client_model`: each runs in a process of its own."""

import asyncio
from random import Random

from pyrocket.client.allocation import averagely
from pyrocket.client.config import ConsumerConfig
from pyrocket.client.core.consumer import ConsumerCore
from pyrocket.client.core.offsets import BrokerOffsets
from pyrocket.client.results import ConsumeResult
from pyrocket.client.transport import Member
from pyrocket.errors import PyrocketError
from pyrocket.values.consuming import GroupPosition, GroupStart

from support.client_model_promises import GROUP
from support.simulated_brokers import Network

STOP_S = 30
LATE_STOP_S = 75
"""More than a stop may take: the time that listeners get, and calls that time out."""


class FileOffsets:
    """The offsets of a broadcasting member, which outlive its process."""

    def __init__(self):
        self.starts, self.offsets, self.fails = {}, {}, False

    def bind(self, transport):
        """Return the store of a process: an `OffsetStore`."""
        return _BoundOffsets(self, transport)

    def write(self, table, values):
        if self.fails:
            raise OSError(24, "Too many open files")
        table.update(values)


class _BoundOffsets:
    def __init__(self, file, transport):
        self._file, self._transport = file, transport

    async def first_contact(self, broker, wanted, brokers):
        known = {topic for name, topic in self._file.starts if name == broker}
        if wanted.keys() - known:
            end = (await self._transport.group_starts(broker, GROUP)).end
            new = {
                (broker, topic): end if start == GroupStart() else start
                for topic, start in wanted.items()
                if topic not in known
            }
            self._file.write(self._file.starts, new)
        return {}

    async def start(self, queue):
        if (known := self._file.offsets.get(queue)) is not None:
            return GroupPosition(known)
        start = self._file.starts[queue.broker, queue.topic]
        return await self._transport.start_offset(GROUP, queue, start)

    async def save(self, positions):
        offsets = {queue: position.offset for queue, position in positions.items()}
        self._file.write(self._file.offsets, offsets)
        return {}


class Running:
    """A member of the group.

    Attributes:
        core: Its core, as soon as it is created.
        has_started: Whether its start has returned.
        has_ended: Whether its process has ended.
        file: The offsets of a broadcasting member.
    """

    def __init__(self, schedule, name, file=None):
        self.name, self.file = name, file
        self._schedule, self._promises = schedule, schedule.promises
        random = self._random = Random(schedule.random.random())
        self.process = schedule.processes.start(name)
        self.network = Network(
            schedule.cluster,
            Random(random.random()),
            name,
            max_delay_s=schedule.max_delay_s,
            loss=schedule.loss,
            commit_s=random.choice([0, 0, 10]),
        )
        self.core, self.has_started, self.has_ended = None, False, False
        self._leaves = False
        self._began_s = schedule.now_s()
        self.process.create_task(self._start())

    async def _start(self):
        schedule, random, network = self._schedule, self._random, self.network
        member = Member(self.name, f"{random.random()}")
        broadcasts = self.file is not None
        offsets = self.file.bind(network) if broadcasts else BrokerOffsets(network, GROUP, member)
        settings = ConsumerConfig(
            group=GROUP,
            **schedule.settings,
            consume_timeout_min=random.choice([1, 15]),
            thread_max=random.choice([1, 4]),
            consume_message_batch_max_size=random.choice([1, 3]),
            strategy=self._strategy,
        )
        try:
            self.core = self.create(settings, member, network, offsets)
            await self.core.start()
            self.has_started = True
        except (PyrocketError, OSError) as error:
            self._not_started(error)
        except Exception as error:
            self._promises.expect(False, f"{self.name} fails to start: {error!r}")
            self._not_started(error)

    def create(self, settings, member, network, offsets):
        return ConsumerCore(
            settings,
            member,
            network,
            offsets,
            self._listen,
            now_ms=0,
            random=Random(self._random.random()),
            boot_s=self.process.boot_s,
            queues_changed=self._queues_changed,
        )

    def _not_started(self, error):
        self.has_ended = True
        self._schedule.members.pop(self.name, None)
        is_calm = self._promises.is_calm_since(self._began_s)
        self._promises.expect(self._leaves or not is_calm, f"{self.name} fails to start: {error!r}")

    async def stop(self):
        """Stop in order, and end the process."""
        self._leaves = True
        began_s = asyncio.get_running_loop().time()
        try:
            if self.core is not None:
                await self.core.stop(timeout_s=STOP_S)
        except Exception as error:
            self._promises.expect(False, f"{self.name} fails to stop: {error!r}")
        taken_s = asyncio.get_running_loop().time() - began_s
        self._promises.expect(taken_s < LATE_STOP_S, f"{self.name} stops after {taken_s:.0f} s")
        self.kill()

    def kill(self):
        self.check_tasks()
        self.has_ended = True
        self.process.kill()
        self._promises.gone(self.name)

    def check_tasks(self):
        """Check that no task of the process has ended with an error."""
        self._promises.expect(
            not self.process.errors, f"{self.name}: tasks ended: {self.process.errors}"
        )

    async def _listen(self, queue, messages):
        self._promises.began(self.name, queue, messages)
        consumed = 0
        try:
            await asyncio.sleep(self._schedule.listener_s(self._random))
            if self._random.random() < self._schedule.failing:
                return self._fail(messages)
            consumed = len(messages)
        finally:
            self._promises.ended(self.name, queue, messages, consumed)
        return ConsumeResult.SUCCESS

    def _fail(self, messages):
        self._promises.failed(self.name, messages)
        result = self._random.choice([ConsumeResult.RECONSUME_LATER, None, RuntimeError("a bug")])
        if isinstance(result, Exception):
            raise result
        return result

    def _strategy(self, *given):
        self._call_back()
        return averagely(*given)

    def _queues_changed(self, topic, queues, mine):
        self._call_back()

    def _call_back(self):
        if self._schedule.callbacks_fail and self._random.random() < 0.5:
            raise RuntimeError("a bug of the application")
