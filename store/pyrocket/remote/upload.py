"""Uploads staged files to a broker, as the staging area of the store's `Stager`."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.wire_block import encode_records
from pyrocket.remote.client import Client
from pyrocket.services.sink.batch import SinkBatch
from pyrocket.services.sink.staging import staged_name
from pyrocket.values.sink import ContentSum, Staged


class BrokerStaging:
    """The staging area of a broker."""

    def __init__(
        self,
        client: Client,
        store_id: str,
        queues_of: Callable[[str], int],
        block_bytes: int,
    ) -> None:
        """`queues_of` returns the number of write queues of a topic, which need not exist yet."""
        self._client, self.store_id, self._queues_of = client, store_id, queues_of
        self._block_bytes = block_bytes
        self._routes: dict[str, int] = {}
        self.root = Path(client.connection.address)

    def create(self, batch: SinkBatch, partition: int, attempt: int) -> tuple[str, "Upload"]:
        """Return the name of a new staged file, and its upload."""
        name = staged_name(batch, partition, attempt)
        return name, Upload(self._client, name, self._routes, self._block_bytes)

    def queues_of(self, topic: str) -> int:
        """Return the number of write queues of a topic."""
        self._routes[topic] = self._queues_of(topic)
        return self._routes[topic]

    def completed(self, name: str) -> None:
        """Do nothing: the broker records the time itself."""

    def remove(self, name: str) -> None:
        """Delete a file that will not be published."""
        self._client.call("Discard", staged=[_named(name, self.store_id)])


class Upload:
    """The upload of one staged file. One block is sent while the next one is filled."""

    def __init__(
        self, client: Client, name: str, routes: Mapping[str, int], block_bytes: int
    ) -> None:
        self._client, self._name, self._routes = client, name, routes
        self._block_bytes = block_bytes
        self._thread = ThreadPoolExecutor(1, "pyrocket-upload")
        self._sent: Future[object] | None = None
        self._waiting: list[bytes] = []
        self._size = self._blocks = 0

    def add(self, batch: EncodedBatch) -> None:
        """Upload a batch. If the broker rejected an earlier block, raises the broker's error."""
        for block in blocks_of(batch, self._block_bytes):
            if self._size and self._size + len(block) > self._block_bytes:
                self._send()
            self._waiting.append(block)
            self._size += len(block)

    def _send(self) -> None:
        self._wait()
        self._sent = self._thread.submit(
            self._client.call,
            "Stage",
            name=self._name,
            number=self._blocks,
            topics=dict(self._routes),
            records=self._waiting,
        )
        self._waiting, self._size, self._blocks = [], 0, self._blocks + 1

    def _wait(self) -> None:
        sent, self._sent = self._sent, None
        if sent is not None:
            sent.result()

    def finish(self) -> tuple[int, int]:
        """Upload the last block; return the length and checksum of the broker's file."""
        self._send()
        self._wait()
        self.close()
        reply = self._client.call("FinishStaging", name=self._name, blocks=self._blocks)
        return reply.value.length, reply.value.checksum

    def close(self) -> None:
        """Stop sending."""
        self._thread.shutdown(cancel_futures=True)


def _named(name: str, store: str) -> Staged:
    return Staged(name, 0, 0, 0, 0, ContentSum(), store)


def blocks_of(batch: EncodedBatch, size: int) -> Iterator[bytes]:
    """Yield the records in blocks of about `size` bytes."""
    records, first = memoryview(batch.data), 0
    while first < len(batch):
        start = int(batch.bounds[first])
        last = int(batch.bounds.searchsorted(start + size, side="right")) - 1
        last = max(last, first + 1)
        yield encode_records(records[start : int(batch.bounds[last])], batch.sizes[first:last])
        first = last
