"""The event loop and connections that the clients of a process share."""

import asyncio
import os
import threading
import time

import pytest
from pyrocket.client.instance import Instance, client_id
from pyrocket.errors import (
    InvalidInputError,
    PyrocketError,
    StoreUnavailableError,
    TransportError,
)


class Transport:
    """Counts how often it is closed."""

    def __init__(self):
        self.closed = 0

    async def close(self):
        self.closed += 1


@pytest.fixture
def connected():
    """Transports in the order of their connections."""
    return []


@pytest.fixture
def acquire(connected):
    async def connect():
        connected.append(Transport())
        return connected[-1]

    acquired = []

    def make(key="server", connect=connect, **options):
        acquired.append(Instance.acquire(key, connect, **options))
        return acquired[-1]

    yield make
    for instance in {*acquired}:
        while instance._users > 0:
            instance.release()


async def seven():
    return 7


def code_of(call, *arguments):
    with pytest.raises(PyrocketError) as caught:
        call(*arguments)
    return caught.value.code


def test_a_coroutine_runs_in_the_thread_of_the_loop_and_its_result_is_returned(acquire):
    async def thread():
        return threading.current_thread().name, threading.current_thread().daemon

    assert acquire().run(thread()) == ("pyrocket-client", True)
    assert acquire().submit(seven()).result(10) == 7


def test_an_error_of_a_coroutine_is_raised_in_the_calling_thread(acquire):
    async def fail():
        raise TransportError("lost", repeat_is_safe=True)

    with pytest.raises(TransportError, match="lost"):
        acquire().run(fail())


def test_clients_of_one_server_share_an_instance_until_the_last_releases_it(acquire, connected):
    first, second = acquire(), acquire()
    assert first is second
    first.release()
    assert second.run(seven()) == 7
    second.release()
    assert [transport.closed for transport in connected] == [1]
    third = acquire()
    assert third is not first
    assert len(connected) == 2


def test_other_servers_credentials_and_names_have_instances_of_their_own(acquire):
    instances = [acquire(), acquire("other"), acquire(("server", "user")), acquire(name="n")]
    assert len({*instances}) == 4
    assert len({instance.client_id for instance in instances}) == 4


def test_the_client_id_is_that_of_rocketmq(acquire):
    address, rest = client_id().split("@")
    assert rest.split("#")[0] == str(os.getpid())
    assert rest.split("#")[1].isdigit()
    assert acquire(name="billing-1").client_id == f"{address}@billing-1"


@pytest.mark.parametrize("name", ["a b", "a@b", "a\n", "x" * 101])
def test_an_illegal_name_is_refused(acquire, name):
    assert code_of(lambda: acquire(name=name)) == "CLIENT_NAME"
    assert code_of(lambda: acquire(name=7)) == "NOT_A_TEXT"


def test_closing_cancels_the_coroutines_and_ends_the_thread(acquire):
    instance = acquire()
    ended = threading.Event()

    async def wait():
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    waiting = threading.Thread(target=lambda: codes.append(code_of(instance.run, wait())))
    codes = []
    waiting.start()
    while not instance.run(others()):
        time.sleep(0.01)
    instance.release()
    waiting.join(10)
    assert codes == ["CLIENT_CLOSED"]
    assert ended.is_set()
    assert not instance._thread.is_alive()


async def others():
    return asyncio.all_tasks() - {asyncio.current_task()}


def test_a_closed_instance_refuses_calls(acquire):
    instance = acquire()
    instance.release()
    assert code_of(instance.run, seven()) == "CLIENT_CLOSED"
    assert code_of(instance.submit, seven()) == "CLIENT_CLOSED"


def test_a_failed_connection_is_reported_and_leaves_no_thread(acquire):
    async def connect():
        raise TransportError("no broker", repeat_is_safe=True)

    before = threading.active_count()
    with pytest.raises(TransportError, match="no broker"):
        acquire(connect=connect)
    assert threading.active_count() == before
    assert acquire().run(seven()) == 7


def test_an_instance_that_is_closing_is_not_shared(acquire, connected):
    instance = acquire()
    closing = threading.Event()

    async def close_slowly():
        closing.set()
        await asyncio.sleep(0.2)
        connected[0].closed += 1

    connected[0].close = close_slowly
    thread = threading.Thread(target=instance.release)
    thread.start()
    assert closing.wait(10)
    assert acquire() is not instance
    assert connected[0].closed == 1
    thread.join()


def test_a_callback_that_would_wait_for_its_own_loop_is_refused(acquire):
    instance = acquire()
    results = []
    done = threading.Event()

    def callback(future):
        try:
            instance.run(seven())
        except InvalidInputError as error:
            results.append(error.code)
        done.set()

    instance.submit(asyncio.sleep(0.05)).add_done_callback(callback)
    assert done.wait(10)
    assert results == ["CLIENT_DEADLOCK"]


def test_a_callback_may_release_the_instance(acquire):
    instance = acquire()
    instance.submit(asyncio.sleep(0.05)).add_done_callback(lambda future: instance.release())
    instance._thread.join(10)
    assert not instance._thread.is_alive()
    assert acquire() is not instance


def in_child(call):
    """Return what `call` returns in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, call().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as result:
        text = result.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_refused_and_can_create_an_instance(acquire):
    instance = acquire()

    def use():
        try:
            instance.run(seven())
        except StoreUnavailableError as error:
            instance.release()
            return f"{error.code} {acquire().run(seven())}"
        return "no error"

    assert in_child(use) == "CLIENT_FORKED 7"
    assert instance.run(seven()) == 7


def test_many_threads_acquire_and_release(acquire, connected):
    def work():
        for _ in range(20):
            instance = acquire()
            assert instance.run(seven()) == 7
            instance.release()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {transport.closed for transport in connected} == {1}
