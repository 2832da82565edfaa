"""Epochs record the ends of queues after recoveries that may have truncated them."""

import pytest
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.metadata import epochs as epochs_file
from pyrocket.metadata.epochs import Epochs


def test_offsets_of_an_older_epoch_are_valid_up_to_the_lowest_later_truncation(tmp_path):
    epochs = Epochs(Layout(tmp_path))
    assert epochs.current == 0
    assert epochs.cut_since(0, "t", 0) is None
    epochs.begin({("t", 0): 50, ("t", 1): 7})
    epochs.begin({("t", 0): 40})
    epochs.begin({("t", 0): 60, ("u", 0): 0})
    again = Epochs(Layout(tmp_path))
    assert again.current == 3
    assert [again.cut_since(epoch, "t", 0) for epoch in range(4)] == [40, 40, 60, None]
    assert [again.cut_since(epoch, "t", 1) for epoch in range(2)] == [7, None]
    assert again.cut_since(2, "u", 0) == 0


@pytest.mark.parametrize(
    "content",
    [b"[{}", b"5", b"[5]", b'[{"t":5}]', b'[{"t":{"x":1}}]', b'[{"t":{"0":null}}]', b"\xa2"],
)
def test_an_invalid_file_is_reported(tmp_path, content):
    layout = Layout(tmp_path)
    layout.own.mkdir()
    layout.epochs.write_bytes(content)
    epochs = Epochs(layout)
    with pytest.raises(StoreDamagedError, match=r"epochs\.json"):
        epochs.cut_since(0, "t", 0)
    with pytest.raises(StoreDamagedError, match=r"epochs\.json"):
        epochs.begin({("t", 0): 1})
    assert layout.epochs.read_bytes() == content


def test_crashes_of_an_idle_store_do_not_make_the_file_longer(tmp_path):
    layout = Layout(tmp_path)
    epochs, ends = Epochs(layout), {("t", queue): 10 for queue in range(1000)}
    epochs.begin(ends)
    first = layout.epochs.stat().st_size
    for _ in range(20):
        epochs.begin(ends)
    assert layout.epochs.stat().st_size < first + 20 * 10
    assert epochs.current == 21
    assert [epochs.cut_since(epoch, "t", 7) for epoch in (0, 20, 21)] == [10, 10, None]


def test_the_oldest_ends_are_dropped_before_the_file_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(epochs_file, "_MAX_ENDS", 25)
    epochs = Epochs(Layout(tmp_path))
    for end in range(1, 6):
        epochs.begin({("t", queue): end for queue in range(10)})
    assert epochs.current == 5
    assert epochs.ends("t", 0) == [3, 4, 5]
    assert epochs.cut_since(4, "t", 0) == 5
