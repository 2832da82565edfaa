"""A producer that decides no transaction is asked about all of them, and soon."""

import sys
import time

import pytest
from pyrocket import Message, Store
from pyrocket.client import Producer
from pyrocket.values.transactions import LocalTransactionState
from support import broker_process

pytestmark = pytest.mark.crash
TOPIC = "payments"


class Undecided:
    """A listener that decides nothing, and records the age of each message at its first check."""

    def __init__(self):
        self.sent_s, self.age_s = {}, {}

    def execute(self, message, argument):
        self.sent_s[message.body] = time.monotonic()
        return LocalTransactionState.UNKNOWN

    def check(self, message):
        age_s = time.monotonic() - self.sent_s[message.body]
        self.age_s.setdefault(message.body, age_s)
        return LocalTransactionState.UNKNOWN

    def unasked(self, within_s):
        """Return the messages that were not asked about in this time."""
        before = time.monotonic() - within_s
        return [one for one, at in self.sent_s.items() if at < before and one not in self.age_s]


# The second case has a fifth of the default times, and half of their limit: machines are slow.
@pytest.mark.parametrize(
    ("seconds", "rate", "most_s", "flags"),
    [
        pytest.param(600, 3.3, 40, (), marks=pytest.mark.heavy),
        pytest.param(
            100,
            12,
            20,
            ("--transaction-timeout", "1200ms", "--transaction-check-interval", "6s"),
            marks=pytest.mark.heavy,
        ),
    ],
)
def test_the_age_of_a_first_check_does_not_grow_with_the_undecided_messages(
    tmp_path, seconds, rate, most_s, flags
):
    with Store.open(tmp_path / "store", create=True) as store:
        store.topics.create(TOPIC)
    listener = Undecided()
    given = {"listener": listener, "timeout_ms": 20_000}
    with (
        broker_process.running(tmp_path / "store", *flags) as (_, found),
        Producer("payers", endpoint=found.listen[0], **given) as producer,
    ):
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            number = len(listener.sent_s)
            time.sleep(max(0, began + number / rate - time.monotonic()))
            producer.send_in_transaction(Message(topic=TOPIC, body=b"%d" % number))
        unasked = listener.unasked(most_s)
    last = [*listener.age_s.values()][-100:]
    sys.stdout.write(f"{len(listener.sent_s)} sent, {len(listener.age_s)} asked, ")
    sys.stdout.write(f"last first checks after {max(last, default=0):.1f} s at most\n")
    assert not unasked
    assert max(last) <= most_s
