"""UNIQ_KEYs have RocketMQ's format and never repeat."""

from pyrocket.engine.message_encoder import UniqueIds
from support.stores import FakeClock


def test_ids_have_the_format_of_rocketmq():
    ids = UniqueIds(FakeClock())
    for one in [ids.one(), *ids.column(3).to_pylist()]:
        assert len(one) == 32
        assert set(one) <= set("0123456789ABCDEF")


def test_ids_never_repeat_within_a_millisecond_or_after_the_clock_is_set_back():
    clock = FakeClock()
    ids = UniqueIds(clock)
    seen = ids.column(200_000).to_pylist()
    clock.now -= 5000
    seen += ids.column(1000).to_pylist()
    seen += [ids.one() for _ in range(100)]
    assert len(set(seen)) == len(seen)


def test_two_generators_of_a_process_generate_different_ids():
    clock = FakeClock()
    assert UniqueIds(clock).one()[:20] != UniqueIds(clock).one()[:20]
