"""Where recoveries have cut the log."""

from pyrocket.disk.layout import Layout
from pyrocket.services.epochs import Epochs


def test_offsets_of_an_older_epoch_are_good_up_to_the_smallest_later_end(tmp_path):
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
