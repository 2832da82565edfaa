"""The reader and the encoder of an open store and, unless it is read-only, its writer."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from threading import RLock
from typing import Any, TypeVar

from pyrocket.base.cached import Cached
from pyrocket.base.clock import Clock
from pyrocket.base.config import StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.engine.hooks import Hooks, RecoveryHooks
from pyrocket.engine.message_encoder import MessageEncoder
from pyrocket.engine.reader import Reader, StoreFiles
from pyrocket.engine.writer import Writer
from pyrocket.errors import StoreReadOnlyError
from pyrocket.metadata.identity import Identity, load_identity, warn_of_differences
from pyrocket.metadata.role import RoleFile
from pyrocket.metadata.topics import Topics, check_settings, lacking_topics
from pyrocket.values.admin import TopicConfig

T = TypeVar("T")
_making = RLock()


class lazy_property(cached_property[T]):  # noqa: N801  as `cached_property` is written
    """A `cached_property` that is computed once even if several threads access it at once."""

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        with _making:
            return super().__get__(instance, owner)


class Engine:
    """The reader and the writer of one open store. Safe to share between threads."""

    def __init__(
        self,
        layout: Layout,
        config: StoreConfig,
        clock: Clock,
        *,
        read_only: bool,
        recovery: RecoveryHooks,
        hooks: Callable[[], Hooks],
    ) -> None:
        """Open the directory; a writer recovers it if necessary, and calls `hooks` when needed."""
        self.layout, self.clock = layout, clock
        self._writer = None if read_only else Writer(layout, config, clock, recovery, hooks)
        self._is_closed = False
        self._identity = self._writer.identity if self._writer else load_identity(layout, config)
        warn_of_differences(layout, config, self._identity.config)
        self.topics = Topics(layout, clock)
        self.known_topics = Cached(lambda: self.structure, self.topics.all)
        """Returns the topics; they are read only if topics or files were created or deleted."""
        if self._writer is not None:
            _ = self.reader

    @lazy_property
    def reader(self) -> Reader:
        """The reader. A store that is open for reading creates it on first use, staging never."""
        identity, writer = self._identity, self._writer
        files = writer.files if writer else StoreFiles(self.layout, identity.config)
        return Reader(self.layout, identity, self.clock, files, self.topics)

    @lazy_property
    def encoder(self) -> MessageEncoder:
        """Encodes the messages that are appended to the store."""
        return MessageEncoder(self.config, self.clock)

    @property
    def identity(self) -> Identity:
        """The identity of the store, as the reader knows it."""
        return self.reader.identity if "reader" in vars(self) else self._identity

    @property
    def config(self) -> StoreConfig:
        """The settings in effect: settings saved in the directory override the given ones."""
        return self.identity.config

    @property
    def read_only(self) -> bool:
        """Whether the store is open for reading only, or closed."""
        return self._writer is None or self._is_closed

    @property
    def writer(self) -> Writer:
        """The writer. Raises StoreReadOnlyError."""
        if self._is_closed:
            raise self._refusal()
        return self.writer_in_hook

    @property
    def writer_in_hook(self) -> Writer:
        """The writer, for hooks, which are also called while the store is being closed."""
        if self._writer is None:
            raise self._refusal()
        return self._writer

    @property
    def structure(self) -> int:
        """The version of the set of topics and files; see `Writer.structure`."""
        return self._writer.structure if self._writer else self.reader.position().structure

    def create_topics(self, wanted: Sequence[TopicConfig]) -> list[TopicConfig]:
        """Create the missing topics and return all. Requires the write lock."""
        for topic in wanted:
            check_settings(topic)
        known = self.topics.all()
        if missing := [topic for topic in wanted if topic.name not in known]:
            with self.writer_in_hook.changing_topics():
                self.topics.restore(missing)
            known = self.topics.all()
        return [known[topic.name] for topic in wanted]

    def ensure_topics(self, queues: Mapping[str, int]) -> None:
        """Create topics or add queues up to the given numbers. Requires the write lock."""
        if lacking_topics(queues, self.topics.all()):
            with self.writer_in_hook.changing_topics():
                self.topics.ensure(queues)

    def close(self, *, clean: bool) -> None:
        """Close the files; with `clean`, the last writer to close shuts the store down cleanly."""
        self._is_closed = True
        writer = self._writer
        try:
            if writer is not None:
                writer.close(clean=clean)
        finally:
            self._writer = None
            if "reader" in vars(self):
                self.reader.close()

    def _refusal(self) -> StoreReadOnlyError:
        return RoleFile(self.layout).refusal() or StoreReadOnlyError(
            f"{self.layout.root} is open for reading only, or closed.",
            remedy="Open it with read_only=False.",
        )
