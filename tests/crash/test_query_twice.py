"""One query, started by two drivers: the later run goes on, the earlier one is told why it ends."""

import time

import pytest
from crash.fire import Pauses, Pipe

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.slow]


def wait_until(condition, seconds, pipe):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, pipe.told()
        time.sleep(0.05)


@pytest.mark.parametrize("window", ["publication begins", "a task has staged"])
def test_the_earlier_run_of_a_query_is_fenced(tmp_path, window):
    pipe, pauses = Pipe(tmp_path), Pauses(tmp_path / "pauses")
    try:
        pipe.feed(800)
        earlier = pipe.start("until-failure", pauses)
        wait_until(lambda: pipe.batches() >= 1, 120, pipe)
        pipe.feed(800)
        pauses.plan(window)
        assert pauses.hit(60), pipe.told()
        before = pipe.batches()
        pipe.start("forever")
        wait_until(lambda: pipe.batches() >= before + 3, 120, pipe)
        pauses.go()
        assert earlier.wait(60) == 0, pipe.told()
        assert "SINK_FENCED" in pipe.log.read_text()
        pipe.finish()
    finally:
        pipe.stop()
