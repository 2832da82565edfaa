"""The core of a push consumer, against a simulated network."""

import asyncio
import json
from dataclasses import replace

import pytest
from pyrocket.client.core.listening import ListenerExitError
from pyrocket.client.results import ConsumeResult
from pyrocket.errors import InvalidInputError, TopicNotFoundError, TransportError
from pyrocket.values.consuming import MessageModel, Subscription
from support.core_consumers import Listener, committed, consumed, consumer
from support.simulated_loop import simulated


@simulated
async def test_every_message_is_consumed_once_and_the_ends_are_committed(cluster):
    orders, listener = cluster(), Listener()
    core = consumer(orders, listener)
    assert await consumed(core) == 0
    stats = core.stats
    assert (stats.consumed, stats.sent_back, stats.repeated, stats.listener_errors) == (10, 0, 0, 0)
    assert sorted(listener.bodies) == sorted(
        b"%d-%d" % (queue, number) for queue in range(2) for number in range(5)
    )
    assert committed(orders) == {0: 5, 1: 5}


@simulated
async def test_batches_have_the_configured_size_and_one_queue(cluster):
    orders, listener = cluster(queues=1, messages=7), Listener()
    await consumed(consumer(orders, listener, consume_message_batch_max_size=3))
    assert sorted(map(len, listener.got)) == [1, 3, 3]


@simulated
async def test_listeners_run_at_once_up_to_the_number_of_threads(cluster):
    orders, listener = cluster(queues=1, messages=8), Listener(seconds=10)
    core = consumer(orders, listener, thread_max=4)
    await core.start()
    await asyncio.sleep(15)
    assert len(listener.got) == 8
    await core.stop()


@pytest.mark.parametrize(
    "result",
    [ConsumeResult.RECONSUME_LATER, ValueError("no"), None, "SUCCESS"],
    ids=["later", "error", "None", "text"],
)
@simulated
async def test_failed_messages_are_sent_back_and_delivered_again_under_their_topic(cluster, result):
    orders, listener = cluster(queues=1, messages=1), Listener(result)
    topics = []

    async def listen(queue, messages):
        topics.extend(message.topic for message in messages)
        return await listener(queue, messages)

    core = consumer(orders, listen)
    await consumed(core)
    assert listener.bodies == [b"0-0", b"0-0"]
    assert topics == ["orders", "orders"]
    assert committed(orders) == {0: 1}
    assert (core.stats.sent_back, core.stats.repeated, core.stats.consumed) == (1, 1, 1)


@simulated
async def test_the_traceback_of_an_error_is_logged_once(cluster, caplog):
    orders, listener = cluster(queues=1, messages=3), Listener(*[ValueError("no")] * 3)
    await consumed(consumer(orders, listener))
    assert caplog.text.count("of topic 'orders' queue 0: ValueError('no')") == 3
    assert caplog.text.count("Traceback") == 1


@simulated
async def test_a_result_of_another_type_is_logged_once_for_each_type(cluster, caplog):
    orders, listener = cluster(queues=1, messages=4), Listener(3, None, 3, None)
    await consumed(consumer(orders, listener))
    assert caplog.text.count("the listener returned int") == 1
    assert caplog.text.count("the listener returned NoneType") == 1


@simulated
async def test_the_time_without_queues_is_measured(cluster):
    orders = cluster(queues=1, messages=3)
    first, second = consumer(orders, Listener()), consumer(orders, Listener(), "c2")
    await first.start()
    await second.start()
    await asyncio.sleep(61)
    assert first.stats.without_queues_s < 2
    assert 59 <= second.stats.without_queues_s <= 61
    await first.stop()
    await asyncio.sleep(60)
    assert second.stats.without_queues_s < 65
    await second.stop()


@simulated
async def test_only_messages_after_the_ack_index_are_sent_back(cluster):
    orders, listener = cluster(queues=1, messages=3), Listener(ConsumeResult.success_up_to(0))
    await consumed(consumer(orders, listener, consume_message_batch_max_size=3))
    assert [offset for _, offset in orders.sent_back] == [1, 2]


@pytest.mark.parametrize("level", [-1, 5])
@simulated
async def test_the_delay_level_of_a_result_goes_with_the_messages_that_are_sent_back(
    cluster, level
):
    orders, levels = cluster(queues=1, messages=1), []
    core = consumer(orders, Listener(ConsumeResult.reconsume_at_level(level)))
    send_back = core._transport.send_back

    async def recorded(group, queue, offset, level, *more):
        levels.append(level)
        await send_back(group, queue, offset, level, *more)

    core._transport.send_back = recorded
    await consumed(core)
    assert (levels, len(orders.dead_letters)) == ([level], int(level < 0))


@simulated
async def test_a_suspended_consumer_keeps_its_queues_and_pulls_nothing_until_it_resumes(cluster):
    orders, listener = cluster(queues=1), Listener()
    core = consumer(orders, listener)
    await core.start()
    await asyncio.sleep(10)
    core.suspend()
    await asyncio.sleep(20)  # The pull that waits at the broker ends.
    orders.append(orders.queues["orders"][0], b"late")
    await asyncio.sleep(120)
    assert len(listener.bodies) == 5
    assert core.held
    core.resume()
    await asyncio.sleep(1)
    assert listener.bodies[5:] == [b"late"]
    await core.stop()


@simulated
async def test_a_message_is_a_dead_letter_after_all_attempts(cluster):
    orders = cluster(queues=1, messages=1)
    listener = Listener(*[ConsumeResult.RECONSUME_LATER] * 3)
    await consumed(consumer(orders, listener, max_reconsume_times=2), seconds=120)
    assert len(listener.got) == 3
    assert [one.body for one in orders.dead_letters] == [b"0-0"]


@simulated
async def test_a_dead_letter_has_the_topic_to_which_the_consumer_subscribed(cluster):
    orders, topics = cluster(queues=1, messages=1), []

    async def listen(queue, messages):
        topics.extend(message.topic for message in messages)
        return ConsumeResult.SUCCESS

    await consumed(consumer(orders, Listener(ConsumeResult.RECONSUME_LATER), max_reconsume_times=0))
    letters = {"group": "letters", "subscriptions": {"%DLQ%billing": Subscription()}}
    await consumed(consumer(orders, listen, **letters))
    assert topics == ["%DLQ%billing"]


@simulated
async def test_a_message_that_cannot_be_sent_back_is_delivered_again_and_not_committed(cluster):
    orders = cluster(queues=1, messages=1)
    listener = Listener(ConsumeResult.RECONSUME_LATER, ConsumeResult.RECONSUME_LATER)
    core = consumer(orders, listener)

    async def fail(*arguments):
        raise TransportError("lost", remedy="", repeat_is_safe=True)

    core._transport.send_back = fail
    await core.start()
    await asyncio.sleep(6)
    assert (len(listener.got), committed(orders).get(0, 0)) == (2, 0)
    await asyncio.sleep(60)
    assert (len(listener.got), committed(orders)) == (3, {0: 1})
    await core.stop()


@simulated
async def test_a_message_that_a_listener_has_for_too_long_is_sent_back_once(cluster):
    orders, listener = cluster(queues=1, messages=1), Listener(ConsumeResult.RECONSUME_LATER)
    listener.seconds = 200
    await consumed(consumer(orders, listener, consume_timeout_min=1), seconds=1000)
    assert len(orders.sent_back) >= 1
    assert orders.sent_back.count(orders.sent_back[0]) == 1


@simulated
async def test_a_late_message_that_cannot_be_sent_back_is_not_delivered_more_often(cluster):
    orders, listener = cluster(queues=1, messages=1), Listener(seconds=1000)
    core = consumer(orders, listener, consume_timeout_min=1)

    async def fail(*arguments):
        raise TransportError("lost", remedy="", repeat_is_safe=True)

    core._transport.send_back = fail
    await core.start()
    await asyncio.sleep(3000)
    assert (len(listener.got), committed(orders)) == (1, {0: 1})
    await core.stop()


@simulated
async def test_a_broadcasting_consumer_holds_all_queues_and_drops_failed_messages(cluster):
    orders, first = cluster(), Listener(ConsumeResult.RECONSUME_LATER)
    second = Listener()
    cores = [
        consumer(orders, listener, name, message_model=MessageModel.BROADCASTING)
        for name, listener in {"c1": first, "c2": second}.items()
    ]
    for core in cores:
        await core.start()
    await asyncio.sleep(60)
    assert len(first.bodies) == len(second.bodies) == 10
    assert not orders.sent_back
    for core in cores:
        await core.stop()


@simulated
async def test_the_offset_of_a_broadcasting_consumer_does_not_pass_a_message_that_a_listener_has(
    cluster,
):
    """Nothing is sent back to it: a consumer that is killed then must get the message again."""
    orders, listener = cluster(queues=1, messages=2), Listener(seconds=300)
    settings = {"message_model": MessageModel.BROADCASTING, "consume_timeout_min": 1}
    core = consumer(orders, listener, **settings)
    await core.start()
    await asyncio.sleep(290)
    assert committed(orders).get(0, 0) == 0
    await asyncio.sleep(60)
    assert committed(orders) == {0: 2}
    await core.stop()


@simulated
async def test_two_members_share_the_queues_and_a_new_member_is_noticed_at_once(cluster):
    orders = cluster(queues=4)
    first, second = consumer(orders, Listener()), consumer(orders, Listener(), "c2")
    await first.start()
    assert len(held(first)) == 4
    await second.start()
    await asyncio.sleep(1)
    assert [len(held(one)) for one in (first, second)] == [2, 2]
    await first.stop()
    await asyncio.sleep(1)
    assert len(held(second)) == 4
    await second.stop()


def held(core, topic="orders"):
    return [queue for queue in core.held if queue.topic == topic]


@simulated
async def test_a_stopped_consumer_waits_for_its_listeners_and_commits_their_results(cluster):
    orders, listener = cluster(queues=1, messages=1), Listener(seconds=10)
    core = consumer(orders, listener)
    await core.start()
    await asyncio.sleep(1)
    assert await core.stop() == 0
    assert committed(orders) == {0: 1}


@simulated
async def test_a_stop_reports_messages_that_listeners_still_have_and_does_not_commit_them(cluster):
    orders, listener = cluster(queues=1, messages=1), Listener(seconds=100)
    core = consumer(orders, listener, stop_timeout_ms=5_000)
    await core.start()
    await asyncio.sleep(1)
    assert await core.stop() == 1
    assert not committed(orders).get(0)


@simulated
async def test_a_listener_that_ends_the_program_stops_the_consumer_without_a_commit(cluster):
    orders, listener = cluster(queues=1, messages=1), Listener(ListenerExitError())
    core = consumer(orders, listener)
    await core.start()
    with pytest.raises(ListenerExitError):
        await core.exited
    await core.abandon()
    assert not committed(orders).get(0)


@simulated
async def test_pulling_pauses_while_listeners_have_too_many_messages(cluster):
    orders, listener = cluster(queues=1, messages=300), Listener(seconds=1000)
    core = consumer(orders, listener, pull_threshold_for_queue=100, thread_max=1)
    await core.start()
    await asyncio.sleep(60)
    assert 100 <= len(next(iter(core.held.values()))) < 100 + 32
    await core.stop(timeout_s=0)


@simulated
async def test_pulling_pauses_while_the_offsets_in_process_span_too_much(cluster):
    orders, listener = cluster(queues=1, messages=500), Listener(seconds=10_000)
    core = consumer(orders, listener, consume_concurrently_max_span=100, thread_max=1)
    await core.start()
    await asyncio.sleep(600)
    assert 100 <= len(core.held[orders.queues["orders"][0]]) <= 100 + 32
    await core.stop(timeout_s=0)


@simulated
async def test_the_limits_of_a_topic_are_divided_by_its_queues(cluster):
    orders, listener = cluster(queues=2, messages=300), Listener(seconds=10_000)
    core = consumer(orders, listener, pull_threshold_for_topic=100, thread_max=1)
    await core.start()
    await asyncio.sleep(60)
    assert all(50 <= len(one) < 50 + 32 for queue, one in core.held.items() if queue in held(core))
    await core.stop(timeout_s=0)


@simulated
async def test_tags_with_the_same_hash_are_not_delivered(cluster):
    orders, listener = cluster(queues=1, messages=0), Listener()
    for tag in ("AaAa", "BBBB"):
        orders.append(orders.queues["orders"][0], tag.encode(), tags=tag)
    core = consumer(orders, listener, subscriptions={"orders": Subscription("AaAa")})
    pull = core._transport.pull
    core._transport.pull = lambda request: pull(replace(request, subscription=Subscription()))
    await consumed(core)
    assert listener.bodies == [b"AaAa"]
    assert committed(orders) == {0: 2}


@simulated
async def test_an_offset_before_the_first_message_is_corrected_and_committed(cluster):
    orders, listener = cluster(queues=1, messages=3), Listener()
    (queue,) = orders.queues["orders"]
    core = consumer(orders, listener)
    await core.start()
    await asyncio.sleep(60)
    orders.append(queue, b"deleted")
    orders.delete_topic("orders")
    orders.create_topic("orders", 1)
    await asyncio.sleep(60)
    assert committed(orders) == {0: 4}
    orders.append(queue, b"new")
    await asyncio.sleep(60)
    assert listener.bodies[3:] == [b"new"]
    assert committed(orders) == {0: 5}
    await core.stop()


@simulated
async def test_an_offset_after_the_last_message_is_corrected_and_committed(cluster, tmp_path):
    orders, listener = cluster(queues=1, messages=2), Listener()
    table = {"offsetTable": {"orders@billing": {"0": 50}}}
    (tmp_path / "a/config/consumerOffset.json").write_text(json.dumps(table))
    core = consumer(orders, listener)
    await core.start()
    await asyncio.sleep(60)
    orders.append(orders.queues["orders"][0], b"new")
    await asyncio.sleep(60)
    assert listener.bodies == [b"new"]
    assert committed(orders) == {0: 3}
    await core.stop()


@simulated
async def test_an_orderly_consumer_repeats_a_message_before_later_ones(cluster):
    orders = cluster(queues=1, messages=3)
    listener = Listener(ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT, ValueError("no"))
    await consumed(consumer(orders, listener, orderly=True))
    assert listener.bodies == [b"0-0", b"0-0", b"0-0", b"0-1", b"0-2"]
    assert not orders.sent_back
    assert committed(orders) == {0: 3}


@simulated
async def test_an_orderly_message_is_a_dead_letter_after_the_given_attempts(cluster):
    orders = cluster(queues=1, messages=2)
    listener = Listener(*[ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT] * 3)
    await consumed(consumer(orders, listener, orderly=True, max_reconsume_times=2))
    assert listener.bodies == [b"0-0", b"0-0", b"0-0", b"0-1"]
    assert [one.body for one in orders.dead_letters] == [b"0-0"]


@simulated
async def test_an_orderly_queue_is_unlocked_by_a_stop(cluster):
    orders = cluster(queues=1)
    first, second = Listener(), Listener()
    await consumed(consumer(orders, first, orderly=True), seconds=1)
    orders.append(orders.queues["orders"][0], b"new")
    await consumed(consumer(orders, second, "c2", orderly=True), seconds=1)
    assert second.bodies == [b"new"]


@simulated
async def test_a_missing_topic_can_be_an_error_at_the_start_which_leaves_no_member(cluster):
    orders = cluster()
    orders.delete_topic("orders")
    with pytest.raises(TopicNotFoundError):
        await consumer(orders, Listener(), missing_topic="error").start()
    assert not orders.watchers
    assert not orders.members("a", "billing")


@simulated
async def test_a_consumer_waits_for_a_missing_topic(cluster):
    orders, listener = cluster(messages=0), Listener()
    orders.delete_topic("orders")
    core = consumer(orders, listener)
    await core.start()
    orders.create_topic("orders", 2)
    orders.append(orders.queues["orders"][0], b"new")
    await asyncio.sleep(60)
    assert listener.bodies == [b"new"]
    await core.stop()


@pytest.mark.parametrize("call", ["route", "check_filter", "heartbeat"])
@simulated
async def test_a_start_that_is_rejected_at_any_step_leaves_no_member(cluster, call):
    orders = cluster(brokers=("a", "b"))
    core = consumer(orders, Listener(), subscriptions={"orders": Subscription("a > 1", "SQL92")})
    works = getattr(core._transport, call)
    calls = []

    async def reject(*arguments):
        calls.append(call)
        if len(calls) > 1 or call == "route":
            raise InvalidInputError("no", remedy="", code="ILLEGAL")
        return await works(*arguments)

    setattr(core._transport, call, reject)
    with pytest.raises(InvalidInputError):
        await core.start()
    assert not orders.watchers
    assert not any(orders.members(name, "billing") for name in "ab")
    assert not core.held


@simulated
async def test_a_start_fails_if_no_broker_answers(cluster):
    orders = cluster(brokers=("a", "b"))
    for broker in orders.brokers.values():
        broker.down = True
    with pytest.raises(TransportError):
        await consumer(orders, Listener()).start()
