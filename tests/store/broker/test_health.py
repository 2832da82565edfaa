"""A broker is ready if an append would succeed now, and not ready otherwise."""

import errno
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc
import pytest
from pyrocket import Retention
from pyrocket.broker.broker import Broker, running_state
from pyrocket.disk import io
from pyrocket.errors import StoreUnavailableError
from pyrocket.server.health import trouble_or_error
from pyrocket.tools.verify.verify import verify
from pyrocket.wire.descriptors import message_class
from support.broker import served
from support.inner import inner
from support.stores import SMALL, bodies, message, set_disk_usage

SERVING, NOT_SERVING = 1, 2
MIB = 1 << 20
FULL = "the disk is full"


@pytest.fixture
def broker(open_store):
    store = open_store(config=replace(SMALL, log_file_bytes=8 * MIB))
    store.topics.create("t", read_queues=1, write_queues=1)
    one = Broker(store)
    yield one
    one.close()


def tend(broker, clock, ms):
    clock.now += ms
    inner(broker.store).writer.run_maintenance()


def fail(*given):
    raise OSError(errno.EIO, "Input/output error")


def test_the_disk_is_full_for_the_health_when_it_is_full_for_an_append(broker, monkeypatch):
    """Without a retention an append needs two log files, with one RocketMQ's ratio."""
    set_disk_usage(monkeypatch, 984, unit=MIB)
    assert broker.trouble == ""
    set_disk_usage(monkeypatch, 985, unit=MIB)
    assert broker.trouble == FULL
    assert running_state(broker.path).disk_full
    broker.store.set_retention(Retention(hours=None))
    set_disk_usage(monkeypatch, 901)
    assert broker.trouble == FULL
    assert running_state(broker.path).disk_full
    with pytest.raises(StoreUnavailableError, match="DISK_FULL"):
        broker.store.append(message())
    set_disk_usage(monkeypatch, 900)
    assert broker.trouble == ""
    broker.store.append(message())


def test_a_failed_write_is_tried_again_every_ten_seconds_without_an_append(
    broker, clock, monkeypatch
):
    broker.store.append(message(b"1"))
    with monkeypatch.context() as fails:
        fails.setattr(io, "write_at", fail)
        with pytest.raises(StoreUnavailableError, match="WRITE_FAILED"):
            broker.store.append(message(b"2"))
        assert "WRITE_FAILED" in broker.trouble
        tend(broker, clock, 10_000)
        assert "Input/output error" in broker.trouble
    tend(broker, clock, 9_999)
    assert "WRITE_FAILED" in broker.trouble
    tend(broker, clock, 1)
    assert broker.trouble == ""
    broker.store.append(message(b"3"))
    assert bodies(broker.store)[0] == [b"1", b"3"]
    assert [one.code for one in verify(broker.path).findings] == ["NOT_CLOSED"]


def test_an_append_that_succeeds_ends_the_trouble_at_once(broker, monkeypatch):
    with monkeypatch.context() as fails:
        fails.setattr(io, "write_at", fail)
        with pytest.raises(StoreUnavailableError):
            broker.store.append(message())
    broker.store.append(message())
    assert broker.trouble == ""


def statuses(address):
    """Yield the statuses that a Watch of the health receives."""
    request = message_class("grpc.health.v1.HealthCheckRequest")(service="")
    reply = message_class("grpc.health.v1.HealthCheckResponse")
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_stream("/grpc.health.v1.Health/Watch")
        for each in call(request.SerializeToString(), timeout=60):
            yield reply.FromString(each).status


def test_the_grpc_health_follows_the_disk_and_the_end_of_the_server(open_store, monkeypatch):
    with ThreadPoolExecutor() as threads:
        with served(open_store()) as address:
            found = statuses(address)
            assert next(found) == SERVING
            set_disk_usage(monkeypatch, 1000)
            assert next(found) == NOT_SERVING
            set_disk_usage(monkeypatch, 100)
            assert next(found) == SERVING
            rest = threads.submit(list, found)
        assert rest.result(60) == [NOT_SERVING]


@pytest.mark.parametrize("error", [StoreUnavailableError("the log has failed."), OSError("EIO")])
def test_a_check_that_fails_is_trouble(error):
    def check():
        raise error

    assert trouble_or_error(check) == str(error)
