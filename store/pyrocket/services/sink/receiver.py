"""`Sink.receiver`: accepts records, and messages to encode, from clients of a broker."""

from collections.abc import Mapping, Sequence

from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.engine import Engine
from pyrocket.engine.message_encoder import EncodedMessage, Origin, TopicRoute
from pyrocket.engine.received import ReceivedRecords, RecordCheck
from pyrocket.engine.sender import Sender
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.message import AppendResult, Message
from pyrocket.services.sink.staging import StagingArea, failing_whole
from pyrocket.services.sink.uploads import Uploads


@translating_methods
class Receiver:
    """Checks or encodes records and appends them. Thread-safe."""

    def __init__(self, engine: Engine, area: StagingArea) -> None:
        self._engine = engine
        self._sender, self._check = Sender(engine), RecordCheck(engine.config, engine.clock)
        self._area, self._uploads, self._clock = area, Uploads(area), engine.clock

    def limit_staging(self, max_bytes: int) -> None:
        """Set the maximum bytes of rows that are staged but not published."""
        self._uploads = Uploads(self._area, max_bytes)

    def check(self, routes: Mapping[str, int], block: bytes) -> EncodedBatch:
        """Check the records of a block, all of one topic, and return them.

        `routes` maps the topic to the number of write queues that the sender assumed.
        The records use the memory of `block`. Raises MessageError, TopicNameError.
        """
        return self._check.check(routes, block)

    def route(self, topic: str) -> TopicRoute:
        """Return the route to a topic; a missing topic is created if the store's configuration
        allows that.

        Raises TopicNameError, TopicNotFoundError, MessageError (TOPIC_NOT_WRITABLE).
        """
        return self._sender.route(self._engine.writer, topic)

    def encode(self, message: Message, route: TopicRoute, origin: Origin) -> EncodedMessage:
        """Encode a message sent by a client as a record. Raises MessageError."""
        return self._sender.outgoing.encode_message(message, route, origin)

    def append(self, requests: Sequence[ReceivedRecords]) -> Sequence[AppendResult | Exception]:
        """Append the records of several requests together, each request entirely or not at all.

        They share one exclusive section and one flush. Returns a result or error for each request.
        """
        return self._sender.append_received(requests)

    def stage(self, name: str, number: int, batches: Sequence[EncodedBatch]) -> None:
        """Write block `number` of a staged file; see `Uploads.add`."""
        with failing_whole(self._area.root):
            self._uploads.add(name, number, batches)

    def check_staged(self, name: str, length: int, checksum: int) -> None:
        """Reject a staged file with a different length or checksum; see `Uploads.check`."""
        with failing_whole(self._area.root):
            self._uploads.check(name, length, checksum)

    def finish_staging(self, name: str, blocks: int) -> tuple[int, int]:
        """Complete a staged file of `blocks` blocks; return its length and checksum."""
        with failing_whole(self._area.root):
            length, checksum = self._uploads.finish(name, blocks)
            self._area.set_time(name, self._clock())
        return length, checksum
