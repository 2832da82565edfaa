"""TEMPORARY."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pyrocket.client.allocation import Strategy, averagely
from pyrocket.client.consume_from import ConsumeFrom
from pyrocket.client.transport import MessageModel, Subscription


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    group: str
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    consume_timestamp: str | datetime | None = None
    strategy: Strategy = averagely
    orderly: bool = False
    thread_min: int = 20
    thread_max: int = 20
    consume_concurrently_max_span: int = 2000
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100
    pull_threshold_for_topic: int = -1
    pull_threshold_size_for_topic: int = -1
    pull_interval_ms: int = 0
    consume_message_batch_max_size: int = 1
    pull_batch_size: int = 32
    max_reconsume_times: int = -1
    suspend_ms: int = 1000
    consume_timeout_min: int = 15
    stop_timeout_ms: int = 30_000
    missing_topic: str = "error"
