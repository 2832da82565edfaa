"""Walks over the log: records longer than a window, bodies in holes, wrong lengths."""

import os

import pytest
from pyrocket.errors import StoreDamagedError
from pyrocket.log import record_walk
from support.inner import inner
from support.stores import SMALL, batch, filled

WINDOW = 64 * 1024
CONFIG = SMALL.with_sizes(log_file_bytes=1024 * 1024)


@pytest.fixture
def small_windows(monkeypatch):
    monkeypatch.setattr(record_walk, "WINDOW_BYTES", WINDOW)


@pytest.fixture
def log(path):
    """The log of a store with a record as long as four windows between short records."""
    long = os.urandom(4 * WINDOW)
    with filled(path, 3, config=CONFIG) as store:
        store.append_batch(batch([long, b"after"], 0), topic="t")
        log = inner(store).reader.log
        log.long, log.end = long, inner(store).reader.log_end()
        yield log


def walked(log, end=None):
    return list(record_walk.walk(log, log.first_offset(), end or log.end))


def test_record_longer_than_a_window_is_one_run_and_the_walk_continues(log, small_windows):
    runs = walked(log)
    assert [len(run) for run in runs] == [3, 1, 1]
    assert int(runs[1].body_length[0]) == 4 * WINDOW
    assert runs[1].bodies().to_pylist() == [log.long]
    assert record_walk.end_of(runs[-1]) == log.end
    assert sum(map(len, record_walk.walk_all(log, log.first_offset(), log.end))) == 5


def test_a_long_record_that_reaches_beyond_the_end_stops_the_walk(log, small_windows):
    """A corrupt size must not cause reads after the requested end."""
    assert [len(run) for run in walked(log, log.end - 4 * WINDOW)] == [3]
    with pytest.raises(StoreDamagedError, match="there is no record at"):
        list(record_walk.walk_all(log, log.first_offset(), log.end - 4 * WINDOW))


def test_a_long_record_whose_lengths_disagree_stops_the_walk(log, small_windows):
    """The body length is halved, which contradicts the size of the record."""
    start = record_walk.end_of(walked(log)[0])
    name = log.run.folder / f"{log.run.start_of(start):020d}"
    at = start - log.run.start_of(start) + 84
    content = bytearray(name.read_bytes()[at : at + 4])
    with name.open("r+b") as file:
        file.seek(at)
        file.write((int.from_bytes(content, "big") // 2).to_bytes(4, "big"))
    assert [len(run) for run in walked(log)] == [3]


def test_a_body_that_lies_in_a_hole_is_copied_and_never_mapped(path, small_windows, monkeypatch):
    """On a full tmpfs, access to a hole through a mapping kills the process."""
    with filled(path, 1, config=CONFIG) as store:
        store.append_batch(batch([bytes(4 * WINDOW), b"after"], 0), topic="t")
        log, end = inner(store).reader.log, inner(store).reader.log_end()
        start = record_walk.end_of(next(record_walk.walk(log, log.first_offset(), end)))
        size = 4 * WINDOW
        monkeypatch.setattr(log.run, "filled", lambda offset, length: min(length, 200))
        monkeypatch.setattr(log.run, "window", lambda *place: pytest.fail(f"mapped {place}"))
        buffer, base = log.filled_window(start, size)
    assert (base, len(buffer)) == (start, size)
    assert not any(buffer.to_pybytes()[200:])


def test_a_window_beyond_the_end_of_a_truncated_file_raises_an_error(path):
    """A window that cannot be read completely is mapped, which reports the short file."""
    with filled(path, 1, config=CONFIG) as store:
        log = inner(store).reader.log
        (name,) = log.run.folder.iterdir()
        os.truncate(name, 8192)
        at = log.first_offset() + 4096
        buffer, _ = log.filled_window(at, 4096)
        assert len(buffer) == 4096
        with pytest.raises((StoreDamagedError, ValueError)):
            log.filled_window(at, 8192)
