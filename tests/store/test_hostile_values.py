"""For any arguments, public methods raise only PyrocketError, with a remedy."""

import errno
import inspect
import mmap
import os
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from pyrocket import (
    LookupRequest,
    Message,
    PyrocketError,
    Retention,
    SinkBatch,
    Store,
    StoreSource,
    TopicConfig,
)
from pyrocket.engine.parts.group_admin import Groups
from pyrocket.engine.parts.history import History
from pyrocket.engine.parts.key_lookup import Lookup
from pyrocket.engine.parts.topic_admin import TopicAdmin
from pyrocket.services.delay.timers import Timers
from pyrocket.services.sink.sink import Sink
from pyrocket.services.transactions.transactions import Transactions
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from pyrocket.values.admin import AtTime
from pyrocket.values.transactions import CheckPolicy, HalfMessageRef
from pyrocket.views.views import Views
from support.halves import UNKNOWN
from support.shares import share
from support.sinks import numbered as batch_of
from support.slices import range_of
from support.stores import SMALL, FakeClock, batch, filled

HOSTILE = {
    "none": None,
    "a number": 5,
    "a negative number": -1,
    "a huge number": 2**70,
    "a fraction": 1.5,
    "NaN": float("nan"),
    "true": True,
    "an empty text": "",
    "another text": "nope",
    "a string with NUL": "a\0b",
    "a string with a surrogate": "a\ud800b",
    "a long text": "x" * 5000,
    "a path": "../../x",
    "bytes": b"t",
    "a list": [],
    "a list of strings": ["a\0b", "\ud800"],
    "a list of numbers": [1, 2, 3],
    "a list of lists": [[], [1]],
    "a dict": {},
    "a dict of anything": {"x": None, 2**70: -1, None: "y"},
    "a dict of huge numbers": {0: 2**70, 2**70: 0},
    "an object": object(),
}
WIRING = {
    *("Timers.hook_into", "Timers.close", "Sink.hook_into", "Transactions.hook_into"),
    *("Transactions.add", "Transactions.remove", "Transactions.answer", "Transactions.close"),
    *("Store.close", "Store.run_services"),
}
"""Methods that only pyrocket itself calls, or that these tests do not need."""

WITH_PATHS = ("Store.open", "Store.snapshot")


def without_arguments(store):
    known = {
        "Store": (store, "deliver_due flush now position"),
        "Groups": (store.groups, "all offsets starts"),
        "TopicAdmin": (store.topics, "all"),
        "Transactions": (store.transactions, "pending run_checks"),
        "Timers": (store.timers, "count entries next_due"),
    }
    return {
        f"{kind}.{name}": (getattr(face, name), {})
        for kind, (face, names) in known.items()
        for name in names.split()
    }


def calls(store):
    """Maps each public method with arguments, by name, to the method and valid arguments."""
    return {**reads(store), **reads_of_parts(store), **writes(store), **calls_of_parts(store)}


def ranges_of(source):
    """Maps the methods that take ranges to functions of the fields of one range."""
    methods = {
        "joined_slice": source.joined_slice,
        "sizes": source.sizes,
        "slices": source.slices,
        "split_at_bytes": lambda ranges: source.split_at_bytes([(ranges[0], [100, 200])]),
    }
    fields_of_range = {"topic": "t", "queue_id": 0, "start": 0, "end": 3}

    def of_fields(method):
        return lambda **given: method([range_of(**given)])

    return {
        f"StoreSource.{name}, fields": (of_fields(method), fields_of_range)
        for name, method in methods.items()
    }


def reads_of_parts(store):
    source, span = StoreSource(store), range_of("t", 0, 0, 3)
    return {
        "StoreSource.split_at_bytes": (source.split_at_bytes, {"splits": [(span, [100, 200])]}),
        "StoreSource.split_at_bytes, sizes": (
            lambda sizes: source.split_at_bytes([(span, sizes)]),
            {"sizes": [100, 200]},
        ),
        "History.cut_since": (store.history.cut_since, {"epoch": 0, "topic": "t", "queue_id": 0}),
        "History.holds": (store.history.holds, {"mark": store.history.mark({"t": {0: 3}})}),
        "History.mark": (store.history.mark, {"offsets": {"t": {0: 3}}}),
        "Lookup.locate": (
            store.lookup.locate,
            {"wanted": LookupRequest(topics=("t",), keys=("k",))},
        ),
        "StoreSource.sizes": (source.sizes, {"ranges": [span]}),
        "Lookup.by_id": (store.lookup.by_id, {"topic": "t", "msg_id": "x"}),
        "Lookup.by_offset_id": (store.lookup.by_offset_id, {"offset_msg_id": "0" * 32}),
        "Lookup.query": (
            store.lookup.query,
            {"topic": "t", "key": "k", "begin_ms": 0, "end_ms": 2**50, "max_messages": 5},
        ),
        "StoreSource.joined_slice": (source.joined_slice, {"ranges": [span]}),
        "StoreSource.slices": (source.slices, {"ranges": [span]}),
        **ranges_of(source),
        "StoreSource.slices_at": (
            source.slices_at,
            {
                "locations": store.lookup.locate(
                    LookupRequest(topics=("t",), keys=("k",))
                ).locations[0]
            },
        ),
    }


def reads(store):
    span = {"topic": "t", "queue_id": 0, "start": 0, "end": 3}
    return {
        "Store.lost_queues": (store.lost_queues, {"topic": "t"}),
        "Store.max_offset": (store.max_offset, {"topic": "t", "queue_id": 0}),
        "Store.min_offset": (store.min_offset, {"topic": "t", "queue_id": 0}),
        "Store.messages": (store.messages, span),
        "Store.offset_by_time": (
            store.offset_by_time,
            {"topic": "t", "queue_id": 0, "timestamp_ms": 0},
        ),
        "Store.offsets": (store.offsets, {"topic": "t"}),
        "Views.pending": (store.views.pending, {"kind": "scheduled"}),
        "Store.queue_range": (store.queue_range, {"topic": "t", "queue_id": 0}),
        "Store.read": (
            store.read,
            {"topic": "t", "queue_id": 0, "offset": 0, "max_messages": 3},
        ),
        "Store.scan": (store.scan, {**span, "columns": ("body",)}),
        "Views.scan_pending": (
            store.views.scan_pending,
            {"part": store.views.pending("scheduled")[0], "topics": ("t",), "columns": ("body",)},
        ),
        "TopicAdmin.get": (store.topics.get, {"name": "t"}),
        "TopicAdmin.message_type": (store.topics.message_type, {"name": "t"}),
    }


def writes(store):
    return {
        "Store.append": (store.append, {"message": Message(topic="t", body=b"x")}),
        "Store.append_batch": (
            store.append_batch,
            {"batch": batch([b"x"]), "topic": "t", "first_queue": 0, "whole": False},
        ),
        "Store.clean": (store.clean, {"hours": 1000, "total_bytes": 10**9, "dry_run": True}),
        "TopicAdmin.create": (
            store.topics.create,
            {"name": "u", "read_queues": 1, "write_queues": 1, "perm": 6, "exist_ok": True},
        ),
        "TopicAdmin.update": (
            store.topics.update,
            {"name": "v", "read_queues": 1, "write_queues": 1, "perm": 6},
        ),
        "TopicAdmin.create_many": (
            store.topics.create_many,
            {"topics": [TopicConfig("x", 1, 1)]},
        ),
        "TopicAdmin.set_message_type": (
            store.topics.set_message_type,
            {"name": "v", "message_type": "FIFO"},
        ),
        "Store.set_retention": (store.set_retention, {"retention": Retention()}),
        "TopicAdmin.delete": (store.topics.delete, {"name": "w"}),
    }


def calls_of_parts(store):
    groups, sink, timers, views = store.groups, store.sink, store.timers, store.views
    return {
        "Groups.commit": (groups.commit, {"group": "g", "topic": "t", "offsets": {0: 1}}),
        "Groups.committed": (groups.committed, {"group": "g", "topic": "t"}),
        "Groups.create": (groups.create, {"group": "g"}),
        "Groups.delete": (groups.delete, {"group": "h"}),
        "Groups.get": (groups.get, {"group": "g"}),
        "Groups.lag": (groups.lag, {"group": "g"}),
        "Groups.reset": (
            groups.reset,
            {"group": "g", "topic": "t", "to": AtTime(5), "force": False},
        ),
        "Groups.topics": (groups.topics, {"group": "g"}),
        "Groups.update": (
            groups.update,
            {
                "group": "g",
                "consume_enabled": True,
                "retry_queues": 1,
                "retry_max_times": 3,
                "fifo": True,
                "backoff": None,
            },
        ),
        **calls_of_transactions(store.transactions),
        "Timers.cancel": (timers.cancel, {"topic": "t", "msg_id": "x"}),
        "Timers.pending": (timers.pending, {"limit": 5, "after": None}),
        "Views.plan": (
            views.plan,
            {"view": "retry", "topics": ("t",), "group": "g", "skips_damage": False},
        ),
        "Views.scan": (
            views.scan,
            {"part": views.plan("commitlog")[0], "columns": ("body",)},
        ),
        "Sink.clean_staging": (sink.clean_staging, {"dry_run": True}),
        "Sink.discard": (sink.discard, {"staged": []}),
        "Sink.last": (sink.last, {"identity": "q", "target": "t"}),
        "Sink.publish": (sink.publish, {"batch": batch_of(0), "staged": []}),
        "Sink.publish_anonymous": (sink.publish_anonymous, {"staged": []}),
        "Sink.stage": (sink.stage, {"batch": batch_of(9), "partition": 0, "attempt": 0}),
        "SinkBatch": (
            SinkBatch,
            {"identity": "q", "target": "t", "batch": 0, "run": "r"},
        ),
    }


def calls_of_transactions(transactions):
    return {
        "Transactions.end": (
            transactions.end,
            {"half": HalfMessageRef(0, 0, "pg", "x"), "state": UNKNOWN, "from_check": False},
        ),
        "Transactions.encode_half": (
            transactions.encode_half,
            {"group": "pg", "message": Message(topic="t", body=b"x"), "immunity_s": 5},
        ),
        "Transactions.end_by_id": (
            transactions.end_by_id,
            {"group": "pg", "transaction_id": "x", "state": UNKNOWN},
        ),
        "Transactions.set_policy": (transactions.set_policy, {"policy": CheckPolicy()}),
        "Transactions.send_half": (
            transactions.send_half,
            {"group": "pg", "message": Message(topic="t", body=b"x"), "immunity_s": 5},
        ),
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with filled(tmp_path_factory.mktemp("hostile") / "store", clock=FakeClock()) as opened:
        for name in ("v", "w"):
            opened.topics.create(name, read_queues=1, write_queues=1)
        opened.append(Message(topic="t", body=b"x", keys="k"))
        opened.append(Message(topic="t", body=b"x", delay_level=9))
        opened.groups.commit("g", "t", {0: 1})
        yield opened


@pytest.fixture
def closed(store, tmp_path):
    """The path of a copy of the store that was closed cleanly."""
    store.snapshot(tmp_path / "store")
    Store.open(tmp_path / "store").close()
    return tmp_path / "store"


def run(method, arguments):
    result = method(**arguments)
    if isinstance(result, Iterator):
        list(result)
    elif hasattr(result, "finish"):
        with result as stager:
            stager.append(batch([b"x"]), topic="t")


def outcome(method, arguments):
    """Return the fault of the error that a call raises; empty if there is none."""
    try:
        run(method, arguments)
    except PyrocketError as error:
        return "" if error.remedy else f"{error.code} has no remedy"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def public_methods():
    kinds = Store, TopicAdmin, Groups, Lookup, History, Transactions, Timers, Views, Sink
    return {
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name, _ in inspect.getmembers(kind, callable)
        if not name.startswith("_") and f"{kind.__name__}.{name}" not in WIRING
    }


def test_every_public_method_is_tried(store):
    assert public_methods() <= {*calls(store), *without_arguments(store), *WITH_PATHS}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_arguments_are_rejected_with_a_remedy(store, what):
    faults = [
        f"{name}({argument}={what}): {fault}"
        for name, (method, good) in calls(store).items()
        for argument in good
        if (fault := outcome(method, {**good, argument: HOSTILE[what]}))
    ]
    assert not faults, "\n".join(faults)


SOUND = Message(topic="t", body=b"x")


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_fields_of_messages_and_requests_are_rejected_with_a_remedy(store, what):
    value = HOSTILE[what]
    tried = [
        *(
            (lambda **changed: store.append(replace(SOUND, **changed)), {one.name: value})
            for one in fields(Message)
        ),
        *(
            (
                store.lookup.locate,
                {"wanted": replace(LookupRequest(topics=("t",)), **{one.name: value})},
            )
            for one in fields(LookupRequest)
        ),
        (store.append, {"message": Message(topic="t", body=b"x", properties={"a": value})}),
        (store.append, {"message": Message(topic="t", body=b"x", keys=[value])}),
        (store.groups.commit, {"group": "g", "topic": "t", "offsets": {0: value}}),
        (store.history.mark, {"offsets": {"t": {0: value}}}),
    ]
    faults = [fault for one in tried if (fault := outcome(*one))]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "given", ["", "a\0b", "a\ud800b", "x" * 5000, "y/" * 3000, b"bytes", None, 5, [], object()]
)
def test_invalid_paths_are_rejected_with_a_remedy(store, given):
    for method, arguments in [
        (Store.open, {"path": given}),
        (Store.open, {"path": given, "create": True}),
        (verify, {"path": given}),
        (repair, {"path": given}),
        (store.snapshot, {"target": given}),
    ]:
        with pytest.raises(PyrocketError) as failure:
            method(**arguments)
        assert failure.value.remedy


SEAMS = [(os, "open"), (os, "pread"), (os, "listdir"), (os, "stat"), (mmap, "mmap")]


def refusing(number):
    def refuse(*arguments, **options):
        path = next((one for one in arguments if isinstance(one, str | Path)), None)
        raise OSError(number, os.strerror(number), *([] if path is None else [str(path)]))

    return refuse


@pytest.mark.parametrize(
    "number",
    share(
        [
            *(errno.ELOOP, errno.EROFS, errno.ENOMEM, errno.ENAMETOOLONG, errno.EACCES),
            *(errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENXIO),
        ],
        3,
    ),
    ids=errno.errorcode.get,
)
@pytest.mark.parametrize("read_only", [True, False])
def test_os_errors_are_translated(closed, clock, monkeypatch, number, read_only):
    faults = []
    for target, name in SEAMS:
        with Store.open(closed, read_only=read_only, config=SMALL, clock=clock) as tried:
            methods = {**calls(tried), **without_arguments(tried)}
            with monkeypatch.context() as patch:
                patch.setattr(target, name, refusing(number))
                found = {key: outcome(*call) for key, call in methods.items()}
            faults += [f"{name}: {key}: {fault}" for key, fault in found.items() if fault]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", ["open", "pread", "stat", "listdir", "mkdir", "rename"])
def test_open_verify_and_repair_translate_os_errors(closed, tmp_path, monkeypatch, name):
    calls = [
        (Store.open, {"path": closed}),
        (Store.open, {"path": closed, "read_only": True}),
        (Store.open, {"path": tmp_path / "new", "create": True}),
        (verify, {"path": closed}),
        (repair, {"path": closed}),
    ]
    for number in (errno.ELOOP, errno.EROFS, errno.ENOMEM, errno.EACCES):
        for call in calls:
            with monkeypatch.context() as patch:
                patch.setattr(os, name, refusing(number))
                assert not outcome(*call)
