"""Consumer groups for tests: a `Pop` over a store, whose appends are done at once."""

from concurrent.futures import Future

from pyrocket.broker.pop.pop import Pop
from pyrocket.broker.pop.values import PopSettings

from support.stores import message


def at_once(store):
    """An append function that does not wait for other requests."""

    def append(records):
        done = Future()
        (result,) = store.sink.receiver.append([records])
        if isinstance(result, Exception):
            done.set_exception(result)
        else:
            done.set_result(result)
        return done

    return append


def popped(store, group="g", **settings):
    """A `Pop`; the group is created with the topic `t`."""
    store.groups.create(group)
    return Pop(store, at_once(store), PopSettings(**settings))


def sent(store, count, first=0, topic="t", queue_id=0, **more):
    """Append messages; return their bodies."""
    bodies = [b"%d" % n for n in range(first, first + count)]
    for body in bodies:
        store.append(message(body, topic=topic, queue_id=queue_id, **more))
    return bodies


def bodies(received):
    """The bodies of what was received, stored."""
    received.stored.result(10)
    return [one.message.body for one in received.messages]


def attempts(received):
    """The attempts of what was received, by body."""
    received.stored.result(10)
    return {one.message.body: one.attempt for one in received.messages}


def handles(received):
    """Its handles."""
    return [one.handle for one in received.messages]


def acked(pop, received, group="g", topic="t"):
    """Ack everything that was received; return which handles were valid."""
    done = pop.ack(group, topic, handles(received))
    done.stored.result(10)
    return done.valid
