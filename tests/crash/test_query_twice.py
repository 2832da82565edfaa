"""If two drivers start one query, the later run continues and the earlier run fails."""

import time

import pytest
from crash.fire import KEYS, Pauses, Pipe

pytestmark = [pytest.mark.spark, pytest.mark.crash]


def wait_until(condition, seconds, pipe):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, pipe.report()
        time.sleep(0.05)


@pytest.mark.heavy
@pytest.mark.parametrize("window", ["publication begins", "a task has staged"])
def test_the_earlier_of_two_concurrent_runs_of_a_query_is_fenced(tmp_path, window):
    pipe, pauses = Pipe(tmp_path), Pauses(tmp_path / "pauses")
    try:
        pipe.feed(800)
        earlier = pipe.start("until-failure", pauses)
        wait_until(lambda: pipe.batches() >= 1, 120, pipe)
        pipe.feed(800)
        pauses.plan(window)
        assert pauses.hit(60), pipe.report()
        before = pipe.batches()
        pipe.start("forever")
        wait_until(lambda: pipe.batches() >= before + 3, 120, pipe)
        pauses.go()
        assert earlier.wait(60) == 0, pipe.report()
        assert "SINK_FENCED" in pipe.log.read_text()
        pipe.finish()
    finally:
        pipe.stop()


@pytest.mark.heavy
def test_an_earlier_run_that_has_not_published_does_not_stop_a_later_run(tmp_path):
    """The earlier run is paused in its first micro-batch, which the later run publishes."""
    pipe, pauses = Pipe(tmp_path), Pauses(tmp_path / "pauses")
    try:
        pipe.feed(KEYS)
        pauses.plan("publication begins")
        earlier = pipe.start("until-failure", pauses)
        assert pauses.hit(240), pipe.report()
        later = pipe.start("until-failure")
        wait_until(lambda: pipe.batches() >= 1, 240, pipe)
        pauses.go()
        assert earlier.wait(60) == 0, pipe.report()
        assert "SINK_FENCED" in pipe.log.read_text()
        pipe.feed(10 * KEYS)
        pipe.finish(120)
        assert later.alive(), pipe.report()
    finally:
        pipe.stop()
