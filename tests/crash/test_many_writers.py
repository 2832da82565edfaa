"""Several processes and threads write to one store while others read it."""

import threading
import time

import pytest
from crash.children import (
    create_at,
    hold_turn,
    produce,
    produce_in_threads,
    take_turns,
)
from crash.follower import Follower
from crash.nursery import wait_for
from pyrocket import Store, StoreConfig
from pyrocket.errors import StoreLockedError
from support.shares import share
from support.stores import SMALL, bodies, log_files, message, queue_files

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quick_disk")]

COUNT = 200


def check_producers(seen, producers, count):
    """Check that each message exists once, that the messages of a producer are in order in each
    queue, and that each producer has at least `count`.
    """
    for producer in producers:
        total = 0
        for queue_id, rows in seen.items():
            mine = [body.decode().split(":")[1] for body in rows if body.startswith(producer)]
            assert list(map(int, mine)) == list(range(queue_id, 2 * len(mine), 2))
            total += len(mine)
        assert total >= count


def test_four_processes_and_threads_write_while_others_read(nursery, path, diaries):
    followers = [Follower(path) for _ in range(2)]
    for follower in followers:
        follower.start()
    given = {"path": path, "diaries": diaries, "count": COUNT}
    children = [nursery.start(produce, producer=f"p{n}", seed=n, **given) for n in range(3)]
    children.append(nursery.start(produce_in_threads, producer="q", seed=9, **given))
    produce_in_threads(path, diaries, "own", COUNT, 77)
    assert [nursery.wait(child) for child in children] == [0] * 4
    for follower in followers:
        follower.done.set()
        follower.join()
        assert not follower.errors
    names = [b"p0:", b"p1:", b"p2:", b"q.0:", b"q.1:", b"own.0:", b"own.1:"]
    with Store.open(path, read_only=True) as reader:
        final = bodies(reader)
    assert followers[0].seen == followers[1].seen == final
    check_producers(final, names, COUNT)
    assert not (path / "abort").exists(), "the last process to close the store shut it down cleanly"
    assert len(log_files(path)) > 50
    assert len(queue_files(path)) > 50


def test_threads_that_share_a_store_append_each_message_once(path, diaries):
    with Store.open(path, config=SMALL) as store:

        def send(name):
            for number in range(60):
                store.append(message(b"%s:%d:" % (name, number), queue_id=number % 2))

        threads = [threading.Thread(target=send, args=(b"t%d" % n,)) for n in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check_producers(bodies(store), [b"t%d:" % n for n in range(5)], 60)


def test_the_write_lock_is_fair(nursery, tmp_path):
    ready, results = ([tmp_path / f"{name}{n}" for n in range(4)] for name in ("ready", "turns"))
    moment = tmp_path / "moment"
    children = [
        nursery.start(take_turns, folder=tmp_path, ready=file, moment=moment, result=result)
        for file, result in zip(ready, results, strict=True)
    ]
    for file in ready:
        wait_for(file)
    at_once = tmp_path / "at_once"
    at_once.write_text(str(time.monotonic() + 2))
    at_once.rename(moment)
    assert [nursery.wait(child) for child in children] == [0] * 4
    counts = [int(result.read_text()) for result in results]
    for count in counts:
        assert 0.15 < count / sum(counts) < 0.4, counts


def test_a_lock_timeout_names_the_holder(nursery, path, tmp_path):
    holder = nursery.start(hold_turn, path=path, ready=tmp_path / "ready")
    wait_for(tmp_path / "ready")
    impatient = StoreConfig(log_file_bytes=4096, lock_timeout_ms=60)
    with pytest.raises(StoreLockedError, match=f"process {holder} ") as caught:
        Store.open(path, config=impatient)
    assert caught.value.code == "LOCK_TIMEOUT"
    with Store.open(path, read_only=True) as reader:
        assert bodies(reader) == {0: [], 1: []}
    nursery.kill(holder)
    with Store.open(path, config=impatient) as store:
        store.append(message())


@pytest.mark.parametrize("attempt", share(range(5), 2))
def test_concurrent_creators_make_one_store(nursery, tmp_path, attempt):
    place, moment = tmp_path / "new", time.monotonic() + 0.05
    children = [
        nursery.start(create_at, path=place, moment=moment, number=number) for number in range(4)
    ]
    assert [nursery.wait(child) for child in children] == [0] * 4
    with Store.open(place, read_only=True) as reader:
        assert sorted(bodies(reader)[0]) == [b"0", b"1", b"2", b"3"]
        assert reader.history.epoch == 0
