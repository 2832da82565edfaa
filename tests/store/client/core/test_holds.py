"""What a consumer knows of a queue belongs to its hold, and ends with it."""

import asyncio

import pytest
from pyrocket.client.results import ConsumeResult
from support.core_consumers import Listener, committed, consumed, consumer
from support.simulated_loop import simulated

FAILED = ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT


@simulated
async def test_the_attempts_of_a_dead_letter_do_not_count_for_the_next_message(cluster):
    orders = cluster(queues=1, messages=2)
    listener = Listener(*[FAILED] * 6)
    await consumed(consumer(orders, listener, orderly=True, max_reconsume_times=2))
    assert listener.bodies == [b"0-0"] * 3 + [b"0-1"] * 3
    assert [one.body for one in orders.dead_letters] == [b"0-0", b"0-1"]


@simulated
async def test_each_message_of_a_batch_has_attempts_of_its_own(cluster):
    orders = cluster(queues=1, messages=3)
    results = [ConsumeResult.success_up_to(0), FAILED, FAILED]
    listener = Listener(*results)
    settings = {"orderly": True, "max_reconsume_times": 2, "consume_message_batch_max_size": 2}
    await consumed(consumer(orders, listener, **settings))
    assert listener.got == [
        [b"0-0", b"0-1"],
        [b"0-1", b"0-2"],
        [b"0-1", b"0-2"],
        [b"0-2"],
    ]
    assert [one.body for one in orders.dead_letters] == [b"0-1"]


@simulated
async def test_slow_listeners_of_a_full_queue_are_waited_for(cluster):
    orders, listener = cluster(queues=1, messages=20), Listener(seconds=184)
    settings = {"thread_max": 4, "pull_threshold_for_queue": 4, "pull_batch_size": 4}
    core = consumer(orders, listener, **settings)
    await consumed(core, seconds=5.5 * 184)
    assert sorted(listener.bodies) == sorted(b"0-%d" % number for number in range(20))
    assert committed(orders) == {0: 20}


class Machine:
    """A member whose process can be suspended: none of its calls and timers runs meanwhile."""

    def __init__(self):
        self.slept_s = 0

    def boot_s(self):
        return asyncio.get_running_loop().time() + self.slept_s


@pytest.mark.parametrize("orderly", [False, True])
@simulated
async def test_a_suspended_member_does_not_go_back_to_its_old_position(cluster, orderly):
    """The machine sleeps, so its monotonic clock stands still: only the other clock tells."""
    orders, machine = cluster(queues=1, messages=50), Machine()
    first, second = Listener(seconds=1), Listener()
    sleeper = consumer(
        orders, first, "sleeper", orderly=orderly, boot_s=machine.boot_s, thread_max=1
    )
    await sleeper.start()
    await asyncio.sleep(10.5)
    network = sleeper._transport
    network.is_cut_off = True  # Its connections are gone, and others get its queues.
    orders.answers("a")["LeaveGroup"]("sleeper", "billing")
    orders.answers("a")["UnlockQueues"]("billing", "sleeper", orders.queues["orders"])
    machine.slept_s += 120
    other = consumer(orders, second, "other", orderly=orderly)
    before = len(first.bodies)
    await other.start()
    await asyncio.sleep(20)
    network.is_cut_off = False
    await asyncio.sleep(100)
    # What its listener had is finished; all else that it had pulled belongs to the other member.
    assert len(first.bodies) <= before + 1
    assert second.bodies[-1] == b"0-49"
    for core in (sleeper, other):
        await core.stop()


@pytest.mark.parametrize("orderly", [False, True])
@simulated
async def test_a_restart_of_the_broker_repeats_nothing(cluster, orderly):
    orders, listener = cluster(queues=2, messages=30), Listener(seconds=1)
    core = consumer(orders, listener, orderly=orderly, thread_max=1)
    await core.start()
    await asyncio.sleep(12)
    orders.restart("a")
    await asyncio.sleep(200)
    assert sorted(listener.bodies) == sorted(
        b"%d-%d" % (queue, number) for queue in range(2) for number in range(30)
    )
    await core.stop()


@pytest.mark.parametrize("orderly", [False, True])
@simulated
async def test_a_group_that_was_reset_with_its_members_expelled_continues_at_the_new_offset(
    cluster, orderly
):
    orders, listener = cluster(queues=1, messages=5), Listener()
    core = consumer(orders, listener, orderly=orderly)
    await core.start()
    await asyncio.sleep(30)
    (queue,) = orders.queues["orders"]
    orders.reset("billing", queue, 3)
    orders.append(queue, b"0-5")
    await asyncio.sleep(60)
    assert listener.bodies[-3:] == [b"0-3", b"0-4", b"0-5"]
    assert listener.bodies.count(b"0-3") == 2
    assert committed(orders) == {0: 6}
    await core.stop()
