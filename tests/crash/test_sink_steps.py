"""The publisher dies at each step of a publication: the batch is visible completely or not at all,
and after a retry once.
"""

import pyarrow as pa
import pytest
from crash.children import publish_all, publish_until_step
from crash.power_loss import HALVES
from pyrocket import Store
from pyrocket.disk.shared_state import PUBLISHED
from support.shares import STEPS
from support.sinks import QUERY, numbered, publish, stage, staged_files
from support.stores import SMALL, bodies, scan, words

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quick_disk")]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("every", STEPS)
def test_a_batch_is_published_once_if_the_publisher_dies_at_any_step(
    nursery, path, tmp_path, half, every
):
    """Batches of nine rows of 700 bytes create new log files and queue files."""
    known, page, fates = 0, words(path), set()
    for number, step in enumerate(range(0, 300, every)):
        rows = [f"{step}:{n}:".ljust(700, ".") for n in range(9)]
        before = page[PUBLISHED]
        status = nursery.run(
            publish_until_step,
            path=path,
            number=number,
            run="run-1" if number == 0 else f"run-{number}b",
            rows=rows,
            step=step,
            half=half,
            trace=tmp_path / f"trace{step}",
        )
        assert status in (0, 9)
        published = page[PUBLISHED] > before
        fates.add(published)
        batch = [row.encode() for row in rows]
        check_readers(path, known, batch if published else [])
        with Store.open(path, config=SMALL) as store:
            published_again = publish(store, number, batch, f"run-{number + 1}b", queue_id=0)
            assert published_again.dropped == published
            assert [body for _, body in scan(store, "t", 0, known)] == batch
            known += len(batch)
            assert store.sink.last(QUERY, "t") == number
        assert staged_files(path) == []
        if status == 0:
            break
    assert status == 0
    assert step > (10 if half else 30)
    assert fates == {True, False}
    page.close()


def check_readers(path, known, batch):
    """Check that before the recovery neither an unpublished batch nor a part of a batch is
    visible.
    """
    with Store.open(path, read_only=True) as reader:
        assert [body for _, body in scan(reader, "t", 0, known)] in ([], batch)


def test_concurrent_publishers_publish_each_batch_once(nursery, path, tmp_path):
    """Each query has two drivers; a driver may be fenced by the other driver."""
    queries = [f"q{number}" for number in range(4)]
    children = [
        nursery.start(
            publish_all,
            path=path,
            identity=identity,
            numbers=list(range(6)),
            run=run,
            rows=12,
            topic="t",
            result=tmp_path / f"{identity}{run}",
        )
        for identity in queries
        for run in ("run-1", "run-2")
    ]
    assert [nursery.wait(child) for child in children] == [0] * 8
    with Store.open(path, config=SMALL) as store:
        rows = [body.decode() for queue in bodies(store).values() for body in queue]
        for identity in queries:
            last = store.sink.last(identity, "t")
            mine = [row for row in rows if row.startswith(f"{identity}:")]
            assert last == 5
            assert len(mine) == len(set(mine)) == 6 * 12
            for key in range(3):
                of_key = [row for row in mine if int(row.split(":")[2]) % 3 == key]
                numbers = [tuple(map(int, row.split(":")[1:])) for row in of_key]
                assert numbers == sorted(numbers), "the rows of a key are in order"
            codes = (tmp_path / f"{identity}run-1").read_text().split(",")
            codes += (tmp_path / f"{identity}run-2").read_text().split(",")
            assert set(codes) <= {"", "SINK_FENCED", "SINK_BATCH_BEHIND"}


def test_rows_of_a_crashed_task_are_never_published(path):
    one = numbered(0)
    with Store.open(path, config=SMALL) as store:
        lost = store.sink.stage(one, partition=0, attempt=0)
        lost.append(pa.record_batch({"body": pa.array([b"lost"])}), topic="t")
        store.sink.publish(one, [stage(store, one, [b"kept"], attempt=1, queue_id=0)])
        assert bodies(store) == {0: [b"kept"], 1: []}
        assert staged_files(path) == []
