"""What must live, lives: no error ends a task of a consumer."""

import asyncio

import pytest
from pyrocket.client.allocation import averagely
from pyrocket.client.results import ConsumeResult
from pyrocket.errors import TransportError
from support.core_consumers import Listener, committed, consumer
from support.simulated_loop import simulated


def failing(*errors):
    """Return a function that raises these errors first, and then a strategy."""
    left = [*errors]

    def strategy(*given):
        if left:
            raise left.pop(0)
        return averagely(*given)

    return strategy


@simulated
async def test_a_strategy_that_raises_is_called_again(cluster, caplog):
    orders, listener = cluster(), Listener()
    core = consumer(orders, listener, strategy=failing(*[ValueError("no")] * 3))
    await core.start()
    await asyncio.sleep(60)
    assert len(listener.bodies) == 10
    assert core.stats.callback_errors == 3
    assert caplog.text.count("Traceback") == 1
    await core.stop()


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize(
    "call",
    ["pull", "heartbeat", "members", "commit", "send_back", "lock", "start_offset", "route"],
)
@simulated
async def test_errors_of_any_kind_in_a_call_end_nothing(cluster, call, orderly):
    orders = cluster(queues=2, messages=5)
    listener = Listener(*[ConsumeResult.RECONSUME_LATER] * 3)
    core = consumer(orders, listener, orderly=orderly, max_reconsume_times=1)
    await core.start()
    works, calls = getattr(core._transport, call), []

    async def fail(*arguments):
        calls.append(call)
        if len(calls) % 3:
            raise RuntimeError("a bug")
        return await works(*arguments)

    setattr(core._transport, call, fail)
    await asyncio.sleep(100)
    orders.add_queue("orders", "a")
    orders.append(orders.queues["orders"][2], b"new")
    await asyncio.sleep(400)
    assert b"new" in listener.bodies
    assert {*listener.bodies} == {
        *(b"%d-%d" % (queue, number) for queue in range(2) for number in range(5)),
        b"new",
    }
    assert committed(orders) == {0: 5, 1: 5, 2: 1}
    await core.stop()


@simulated
async def test_an_error_is_logged_once_until_the_call_has_succeeded(cluster, caplog):
    """A broker that cannot be reached for an hour must not fill the log."""
    orders = cluster(queues=1, messages=1)
    core = consumer(orders, Listener())
    works, fails = core._transport.pull, False

    async def pull(request):
        if fails:
            raise TransportError("the broker is gone", remedy="")
        return await works(request)

    core._transport.pull = pull
    await core.start()
    for times in (1, 2):
        fails = True
        await asyncio.sleep(60)
        fails = False
        await asyncio.sleep(60)
        assert caplog.text.count("a pull of topic 'orders' queue 0 failed") == times
    assert core.stats.task_errors > 20
    await core.stop()
