"""Gives access to internals of an open store, for tests of promises invisible to public methods.

    inner(store).writer.page[PUBLISHED]
    inner(store).crash()

Private attributes of a store are accessed only here, so that tests do not depend on the store's
structure.
"""

from pyrocket import Store
from pyrocket.engine.appender import Appender
from pyrocket.engine.cleaner import Cleaner
from pyrocket.engine.engine import Engine
from pyrocket.engine.message_encoder import MessageEncoder
from pyrocket.engine.reader import Reader
from pyrocket.engine.sender import GroupAppend, Sender
from pyrocket.engine.writer import Writer
from pyrocket.index.keys.index_builder import IndexBuilder
from pyrocket.index.queues.scanner import Scanner
from pyrocket.services.services import Services
from pyrocket.services.transactions.bridge import TransactionBridge


class Inner:
    """The parts of one open store."""

    def __init__(self, store: Store) -> None:
        self.services: Services = store._services
        self.engine: Engine = self.services.engine
        self.reader: Reader = self.engine.reader

    @property
    def scanner(self) -> Scanner:
        return self.reader._scanner

    @property
    def writer(self) -> Writer:
        return self.engine.writer

    @property
    def appender(self) -> Appender:
        return self.writer._appender

    @property
    def cleaner(self) -> Cleaner:
        return self.writer.cleaner

    @property
    def keys(self) -> IndexBuilder:
        return self.writer._keys

    @property
    def sender(self) -> Sender:
        return self.services.sender

    @property
    def encoder(self) -> MessageEncoder:
        return self.sender.outgoing

    @property
    def group_append(self) -> GroupAppend:
        return self.sender._queue

    @property
    def transaction_bridge(self) -> TransactionBridge:
        return self.services.transactions._bridge

    def crash(self) -> None:
        """Release files and locks, as the kernel does for a killed process."""
        self.writer._release()


def inner(store: Store) -> Inner:
    """Return the parts of an open store."""
    return Inner(store)
