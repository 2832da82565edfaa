"""Which brokers a producer avoids because they were slow or failed: RocketMQ's fault table.

A broker is unavailable for some time after a slow or failed send; the longer the send took, the
longer the broker is avoided. Source: `MQFaultStrategy`, `LatencyFaultToleranceImpl`, with the
figures of RocketMQ 5.1.4 and later.
"""

from bisect import bisect_right

_LATENCIES = (50, 100, 550, 1800, 3000, 5000, 15000)
_UNAVAILABLE = (0, 0, 2000, 5000, 6000, 10000, 30000)
_FAILED_SEND = 10000
"""The latency in milliseconds that is recorded for a failed send."""


def unavailable_ms(latency_ms: int) -> int:
    """Return how long a broker is avoided after a send with this latency, in milliseconds.

    >>> unavailable_ms(549), unavailable_ms(550), unavailable_ms(60_000)
    (0, 2000, 30000)
    """
    index = bisect_right(_LATENCIES, latency_ms)
    return _UNAVAILABLE[index - 1] if index else 0


class FaultTable:
    """Keeps for each broker the time until which it is unavailable, and whether it is reachable.

    A broker without an entry is available and reachable. All times are milliseconds of one clock,
    which should be monotonic.
    """

    def __init__(self) -> None:
        self._available_from: dict[str, int] = {}
        self._unreachable: set[str] = set()

    def record(
        self,
        broker: str,
        latency_ms: int,
        now_ms: int,
        *,
        failed: bool = False,
        reachable: bool = True,
    ) -> None:
        """Record the latency of a send. A later record never makes the broker available earlier.

        A `failed` send counts as one that took ten seconds. RocketMQ records an error that the
        broker returned with `failed=True, reachable=False`, and a failed connection with
        `failed=True`.
        """
        unavailable = unavailable_ms(_FAILED_SEND if failed else latency_ms)
        if unavailable:
            known = self._available_from.get(broker, 0)
            self._available_from[broker] = max(known, now_ms + unavailable)
        if reachable:
            self._unreachable.discard(broker)
        else:
            self._unreachable.add(broker)

    def is_available(self, broker: str, now_ms: int) -> bool:
        """Whether the broker is available at this time."""
        return now_ms >= self._available_from.get(broker, now_ms)

    def is_reachable(self, broker: str) -> bool:
        """Whether the last send to the broker reached it, or there was none."""
        return broker not in self._unreachable
