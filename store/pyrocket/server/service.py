"""The calls of `pyrocket.v1.Broker`: methods of `BulkService` or of the broker's parts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_type_hints
from uuid import uuid4

import pyarrow as pa
from google.protobuf.message import Message as ProtoMessage

from pyrocket.broker.broker import Broker
from pyrocket.broker.work import Answers, Work
from pyrocket.errors import InvalidInputError, OptionError, PyrocketError
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.server.requests import parsed
from pyrocket.values.admin import AtTime, GroupLag, LiveMember, ResetTo, TopicConfig
from pyrocket.values.lookup import MessageLocations
from pyrocket.values.message import MessageQueue, QueueRange
from pyrocket.values.source import Part, ReadPlan
from pyrocket.wire.blocks import blocks_of
from pyrocket.wire.channel import SERVICE
from pyrocket.wire.descriptors import message_class, service
from pyrocket.wire.messages import fill, put, values_of

BYTES = "pyrocket.v1.Bytes"

_WINDOW = 65_536
"""Number of queue offsets that a scan reads before it can be cancelled."""


@dataclass(frozen=True)
class Call:
    """One call: the messages of its request and its replies, and its implementation.

    Attributes:
        request: The message class of the request.
        reply: The message class of the reply; None for calls whose replies are bytes.
        streams: Whether there are several replies.
        takes_blocks: Whether blocks of records follow the request. They are checked and passed to
            `answer` as `records`.
        work: Which threads run the call.
        answer: Takes the fields of the request; returns a reply, a future of one, or an iterator of
            replies.
        hints: The types of the arguments of `answer`.
        has_born_host: Whether `answer` takes the address of the client as `born_host`.
    """

    name: str
    request: type[ProtoMessage]
    reply: type[ProtoMessage] | None
    streams: bool
    takes_blocks: bool
    work: Work
    answer: Callable[..., Any]
    hints: Mapping[str, Any]
    has_born_host: bool

    def arguments(self, request: bytes) -> dict[str, Any]:
        """Return the arguments in a request.

        Raises InvalidInputError (REQUEST_MALFORMED, REQUEST_TOO_LONG).
        """
        try:
            return values_of(parsed(self.request, request, self.name), self.hints)
        except PyrocketError:
            raise
        except Exception as error:  # A conversion may raise anything.
            raise InvalidInputError(
                f"the request of {self.name} is malformed: {type(error).__name__}.",
                remedy="Use a client of the same release as the broker.",
                code="REQUEST_MALFORMED",
            ) from None

    def encode(self, value: Any) -> bytes:
        """Return a reply as bytes."""
        if self.reply is None:
            return value
        message = self.reply()
        if value is None and not message.DESCRIPTOR.fields:
            return b""
        if [*message.DESCRIPTOR.fields_by_name] == ["value"]:
            return fill(message, {"value": value}).SerializeToString()
        put(message, value)
        return message.SerializeToString()


class BulkService:
    """The calls, and those of their methods that no part of the broker has."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._source, self._run = broker, broker.source, uuid4().hex
        self._store = broker.store

    def plan(self, topics: Sequence[str]) -> ReadPlan:
        """Return what the planning of a micro-batch reads of the store."""
        return self._source.plan(topics, self._run)

    def lag(self, group: str) -> list[GroupLag]:
        """Return the lag of one group. Raises GroupNotFoundError."""
        return self._store.groups.lag(self._store.groups.get(group).name)

    def update_topic(
        self,
        name: str,
        read_queues: int | None,
        write_queues: int | None,
        perm: int | None,
        message_type: str | None,
        ordered: bool | None,
    ) -> TopicConfig:
        """Change the given attributes of a topic, and the type of its messages."""
        topics = self._store.topics
        if message_type is not None:
            topics.set_message_type(name, message_type)
        return topics.update(
            name, read_queues=read_queues, write_queues=write_queues, perm=perm, ordered=ordered
        )

    def message_type(self, name: str) -> str:
        """Return the type of a topic's messages. Raises TopicNotFoundError."""
        return self._store.topics.message_type(self._store.topics.get(name).name)

    def members(self, group: str) -> list[LiveMember]:
        """Return a group's live members."""
        return self._broker.consumers.members.live(group, self._broker.consumers.ages())

    def reset_group(
        self,
        group: str,
        topic: str,
        rule: str,
        time_ms: int | None,
        offsets: Mapping[int, int],
        force: bool,
    ) -> dict[int, int]:
        """Reset a group in a topic: by a rule, to a time, or to offsets; see `Broker.reset_group`.

        Raises OptionError unless exactly one target is given.
        """
        given: list[ResetTo] = [offsets] if offsets else []
        given += [AtTime(time_ms)] if time_ms is not None else []
        if rule in ("earliest", "latest"):
            given.append("earliest" if rule == "earliest" else "latest")
        if len(given) != 1 or (rule and rule not in given):
            raise OptionError(
                "a reset needs exactly one target.",
                remedy="Use earliest, latest, a time, or an offset for each queue.",
            )
        return self._broker.reset_group(group, topic, given[0], force=force)

    def commit(
        self, group: str, offsets: Mapping[MessageQueue, int], backwards: bool
    ) -> dict[MessageQueue, int]:
        """Commit offsets; a missing group is created only if the broker creates groups."""
        self._broker.consumers.group(group)
        return self._source.commit(group, offsets, backwards=backwards)

    def blocks(self, ranges: Sequence[QueueRange], where: MessageFilter | None) -> Iterator[bytes]:
        """Yield the messages of ranges as blocks."""
        tally = ScanTally()
        return blocks_of(self._windows(ranges, where, tally), tally, ranges)

    def _windows(
        self, ranges: Sequence[QueueRange], where: MessageFilter | None, tally: ScanTally
    ) -> Iterator[RecordSlice | None]:
        """Yield the slices of ranges, and None after each window of offsets.

        The None values allow a scan that selects no messages to be cancelled, and keep the counts
        of a block small.
        """
        for part in ranges:
            for start in range(part.start, max(part.end, part.start + 1), _WINDOW):
                window = replace(part, start=start, end=min(start + _WINDOW, part.end))
                yield from self._source.slices([window], where=where, tally=tally)
                yield None

    def joined_block(
        self, ranges: Sequence[QueueRange], where: MessageFilter | None
    ) -> Iterator[bytes]:
        """Yield small ranges of one topic as one block; nothing if their total is too large."""
        tally = ScanTally()
        part = self._source.joined_slice(ranges, where=where, tally=tally)
        return iter(()) if part is None else blocks_of([part], tally)

    def blocks_at(
        self, locations: MessageLocations, where: MessageFilter | None
    ) -> Iterator[bytes]:
        """Yield the messages at locations as blocks."""
        tally = ScanTally()
        return blocks_of(self._source.slices_at(locations, where=where, tally=tally), tally)

    def view_rows(
        self, part: Part, columns: Sequence[str], topics: Sequence[str], verify_crc: bool
    ) -> Iterator[bytes]:
        """Yield rows of a view: each reply is one batch in Arrow's streaming format."""
        batches = self._source.read_view(part, columns, topics=topics, verify_crc=verify_crc)
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield sink.getvalue().to_pybytes()

    def calls(self) -> list[Call]:
        """Return all calls of the service except `Watch` and `Replicate`: see the server."""
        answers = {Work.READ: self._reads(), Work.WRITE: self._writes()}
        return [*calls_of(SERVICE, answers, get_type_hints(self._broker.sink.check)).values()]

    def reads(self) -> Answers:
        """Return what answers the calls that a replica has, too."""
        store = self._store
        more = {"Group": store.groups.get, "Lag": self.lag, "MessageType": self.message_type}
        return {**self._reads(), **more}

    def _reads(self) -> Answers:
        source, store = self._source, self._store
        return {
            "Hello": self._broker.hello,
            "Status": self._broker.running,
            "Plan": self.plan,
            "Topics": lambda: [*source.topics().values()],
            "Topic": source.topic,
            "Bounds": source.bounds,
            "QueueBounds": source.queue_bounds,
            "Retired": source.retired,
            "OffsetsAt": source.offsets_at,
            "Truncations": source.truncations,
            "Mark": source.mark,
            "Holds": source.holds,
            "Sizes": source.sizes,
            "SplitAtBytes": source.split_at_bytes,
            "Locate": source.locate,
            "PlanView": source.plan_view,
            "Committed": source.committed,
            "Slices": self.blocks,
            "JoinedSlice": self.joined_block,
            "SlicesAt": self.blocks_at,
            "ReadView": self.view_rows,
            "Groups": lambda: [*store.groups.all().values()],
            "Members": self.members,
            "Retention": lambda: store.retention,
        }

    def _writes(self) -> Answers:
        broker, store, sink = self._broker, self._store, self._broker.sink
        holding = broker.confirmations.holding
        return {
            "Commit": self.commit,
            "Prepare": sink.prepare,
            "Append": sink.append,
            "Stage": sink.stage,
            "FinishStaging": sink.finish_staging,
            "Publish": holding(sink.publish),
            "Discard": sink.discard,
            "Flush": holding(sink.flush),
            "CreateTopic": store.topics.create,
            "UpdateTopic": self.update_topic,
            "MessageType": self.message_type,
            "DeleteTopic": broker.delete_topic,
            "Group": store.groups.get,
            "Lag": self.lag,
            "CreateGroup": store.groups.create,
            "UpdateGroup": store.groups.update,
            "ResetGroup": self.reset_group,
            "DeleteGroup": broker.delete_group,
            "SetRetention": store.set_retention,
            "Clean": store.clean,
            "Acknowledge": broker.replicas.acknowledge,
        }


def calls_of(
    name: str, answers: Mapping[Work, Answers], hints: Mapping[str, Any] = {}
) -> dict[str, Call]:
    """Return calls of a service by their names, given what answers them; see `call_of`."""
    methods = service(name).methods_by_name
    return {
        call: call_of(methods[call], answer, work, hints)
        for work, by_call in answers.items()
        for call, answer in by_call.items()
    }


def call_of(
    method: Any, answer: Callable[..., Any], work: Work = Work.READ, hints: Mapping[str, Any] = {}
) -> Call:
    """Return the call of a service's method that `answer` implements.

    `hints` adds the types of arguments that the answers to calls with blocks do not have.
    """
    request = message_class(method.input_type.full_name)
    reply = method.output_type.full_name
    wanted = {**get_type_hints(answer), **(hints if method.client_streaming else {})}
    return Call(
        name=method.name,
        request=request,
        reply=None if reply == BYTES else message_class(reply),
        streams=method.server_streaming,
        takes_blocks=method.client_streaming,
        work=work,
        answer=answer,
        hints={name: wanted[name] for name in request.DESCRIPTOR.fields_by_name if name in wanted},
        has_born_host="born_host" in wanted,
    )
