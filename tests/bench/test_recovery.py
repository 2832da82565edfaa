"""Opening a store takes the same time after every clean shutdown, and time proportional to the new
data after a crash.

The recovery after a crash is compared with a CRC-32 of the same bytes in the same run.
"""

import time
import zlib

import pytest
from bench.data import fill
from pyrocket import Store, StoreConfig
from pyrocket.disk.shared_state import PUBLISHED
from pyrocket.log import valid_end
from support.stores import FakeClock, words

MIB = 1 << 20
BATCH_BYTES = 10_000 * 1300
"""Maximum bytes of records that `fill` appends at a time."""

_BOOT_WORD = 8


class TickingClock(FakeClock):
    """A clock that advances by a second at each call."""

    def __call__(self):
        self.now += 1000
        return self.now


def next_boot(path):
    page = words(path)
    page[_BOOT_WORD] ^= 1
    page.close()


def open_seconds(path):
    start = time.perf_counter()
    store = Store.open(path)
    spent = time.perf_counter() - start
    store.close(clean=False)
    return spent


def test_the_duration_of_opening_after_a_clean_shutdown_does_not_grow(tmp_path, large, report):
    for mib in (10, 10 * 1024) if large else (1, 4):
        path = tmp_path / str(mib)
        with Store.open(path, create=True) as store:
            fill(store, "T", mib * 1024, 1024)
        warm = sorted(open_seconds(path) for _ in range(21))[10]
        next_boot(path)
        booted = open_seconds(path)
        report.line(
            f"{mib:,} MiB after a clean shutdown: open {warm * 1000:.2f} ms (median of 21), in the"
            f" next boot {booted * 1000:.2f} ms"
        )


@pytest.mark.parametrize("since_mib", [64, 512])
def test_recovery_reads_only_the_log_after_the_checkpoint(
    fast_disk, large, report, monkeypatch, since_mib
):
    """The log has 2 GiB before the checkpoint, in files of 64 MiB, and some bytes after it."""
    scale = 1 if large else 64
    clock = TickingClock()
    config = StoreConfig(log_file_bytes=64 * MIB // scale, flush="manual")
    path = fast_disk / "store"
    with Store.open(path, create=True, config=config, clock=clock) as store:
        fill(store, "T", 2048 // scale * 1024, 1024)
    store = Store.open(path, clock=clock)
    fill(store, "T", since_mib // scale * 1024, 1024)
    store.close(clean=False)
    next_boot(path)
    page = words(path)
    end = page[PUBLISHED]
    page.close()
    begun, real = [], valid_end.recovery_start
    monkeypatch.setattr(
        "pyrocket.index.queues.rebuild.recovery_start",
        lambda *given, **named: begun.append(real(*given, **named)) or begun[-1],
    )
    spent = open_seconds(path)
    (start,) = begun
    # RocketMQ subtracts three seconds; recovery starts at the beginning of a file.
    slack = 5 * BATCH_BYTES + 2 * config.log_file_bytes
    assert end - start <= since_mib / scale * MIB * 1.3 + slack
    plain = crc_seconds(path, start)
    report.line(
        f"recovery of {(end - start) / MIB:,.0f} MiB after the checkpoint, of"
        f" {end / MIB:,.0f}: {spent:.2f} s, {(end - start) / spent / 1e9:.2f} GB/s;"
        f" CRC-32 of the same bytes in a loop of 1 MiB {(end - start) / plain / 1e9:.2f} GB/s"
    )


def crc_seconds(path, start):
    """Return the seconds to read and check all files from log offset `start` on."""
    begin = time.perf_counter()
    for file in sorted((path / "commitlog").iterdir()):
        if int(file.name) >= start:
            with file.open("rb") as opened:
                while block := opened.read(MIB):
                    zlib.crc32(block)
    return time.perf_counter() - begin
