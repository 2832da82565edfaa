"""The queue of the message trace: a full queue and failed appends drop traces."""

import threading
from concurrent.futures import Future

import pytest
from pyrocket import Store
from pyrocket.broker.traces import Traces
from pyrocket.errors import BrokerBusyError
from pyrocket.formats.system_topics import TRACE_TOPIC
from pyrocket.formats.trace import MAX_BYTES, decode
from pyrocket.values.transactions import LocalTransactionState

HOST = (bytes((10, 0, 0, 1)), 4711)


class Sends:
    """Holds the first send until `result` has a value; remembers the messages of all sends."""

    def __init__(self):
        self.result, self.called, self.bodies = Future(), threading.Event(), []

    def send(self, messages):
        self.bodies += [sent.message.body.decode() for sent in messages]
        self.called.set()
        return self.result


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "s", create=True) as found:
        yield found


@pytest.fixture
def sends():
    return Sends()


def end(traces, *ids):
    for one in ids:
        traces.transaction_ended(HOST, "t", one, LocalTransactionState.COMMIT, from_check=False)


def traced(sends):
    return [one.message_id for body in sends.bodies for one in decode(body)]


def test_a_full_queue_drops_traces_counts_them_and_logs_once(store, sends, caplog):
    traces = Traces(store, sends, TRACE_TOPIC, max_pending=5)
    end(traces, "first")
    assert sends.called.wait(10)
    end(traces, *map(str, range(12)))
    assert traces.dropped == 7
    sends.result.set_result([])
    traces.close()
    assert traced(sends) == ["first", *"01234"]
    (record,) = caplog.records
    assert "dropped" in record.message


def test_traces_that_cannot_be_stored_are_dropped_and_counted(store, sends, caplog):
    traces = Traces(store, sends, TRACE_TOPIC)
    sends.result.set_exception(BrokerBusyError("full.", remedy="Wait."))
    end(traces, "1", "2")
    traces.close()
    assert traces.dropped == 2
    assert len(caplog.records) == 2


def test_a_trace_that_is_too_long_for_a_message_is_dropped(store, sends):
    traces = Traces(store, sends, TRACE_TOPIC)
    sends.result.set_result([])
    end(traces, "x" * MAX_BYTES, "1")
    traces.close()
    assert traces.dropped == 1
    assert traced(sends) == ["1"]


def test_the_trace_topic_is_created_with_one_queue(store, sends):
    Traces(store, sends, TRACE_TOPIC).close()
    assert store.topics.get(TRACE_TOPIC).write_queues == 1
