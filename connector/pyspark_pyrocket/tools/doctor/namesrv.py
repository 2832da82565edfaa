"""Checks a cluster of Apache RocketMQ step by step: all that a query of a topic needs."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from pyrocket import Credentials, QueueRange, RocketMQCluster, RocketMQSource
from pyrocket.base.arguments import counted
from pyrocket.errors import PyrocketError

from pyspark_pyrocket.tools.doctor.endpoint import STEP_TIMEOUT_S, reachable
from pyspark_pyrocket.tools.doctor.report import Check, fail, ok, warn


def check_namesrv(
    cluster: RocketMQCluster, servers: str, credentials: Credentials, topic: str, group: str
) -> list[Check]:
    """Check name servers, the route of a topic, addresses of brokers, rights, and one message."""
    remedy = "Start the name server there, or check firewalls."
    addresses = [server.strip() for server in servers.replace(",", ";").split(";")]
    checks = [check for address in addresses for check in reachable(address, credentials, remedy)]
    if not any(check.remedy for check in checks):
        checks += _of_brokers(cluster, credentials, topic, group)
    return checks


def _of_brokers(
    cluster: RocketMQCluster, credentials: Credentials, topic: str, group: str
) -> Iterator[Check]:
    try:
        live = cluster.live_brokers(STEP_TIMEOUT_S)
        routes = cluster.routes([topic] if topic else [], STEP_TIMEOUT_S)
    except PyrocketError as error:
        yield fail("name servers", error.message, error.remedy)
        return
    names = sorted(routes[topic].queues if topic in routes else [] if topic else live)
    title, known = (f"route of {topic}", names) if topic else ("brokers", [*live])
    if not known:
        create = (
            "Start its brokers, or create it: mqadmin updateTopic -n NAMESRV -c CLUSTER -t TOPIC."
        )
        yield fail(title, f"none; the live brokers are {', '.join(live) or 'none'}", create)
    else:
        yield ok(title, ", ".join(known))
    for name in names:
        yield from _of_broker(cluster, name, credentials, topic, group)
    if not topic:
        yield warn(
            "topic", "none is named", "Name a topic with --topic, and its group with --group."
        )


def _of_broker(
    cluster: RocketMQCluster, name: str, credentials: Credentials, topic: str, group: str
) -> Iterator[Check]:
    """Check the addresses of a broker, and calls about the topic."""
    for number, address in cluster.broker(name, STEP_TIMEOUT_S).addresses.items():
        remedy = (
            f"The name servers have {address} for {name}. If it is reached at another address from"
            f" here, set the option brokerAddresses={name}=HOST:PORT (--broker-addresses)."
        )
        for check in reachable(address, credentials, remedy):
            yield replace(check, name=f"{name} {number}: {check.name}")
            if check.remedy and not number:
                return
    source = RocketMQSource(cluster, name, (topic,), STEP_TIMEOUT_S, group)
    steps: dict[str, Callable[[], str]] = {
        "rights on the topic": lambda: _size(source, topic),
        "rights on the group": lambda: _progress(source, topic, group),
        "one message": lambda: _last(source, topic),
    }
    title = ""
    try:
        for title, step in steps.items() if topic else ():
            yield ok(f"{name}: {title}", step())
    except PyrocketError as error:
        yield fail(f"{name}: {title}", error.message, error.remedy)


def _size(source: RocketMQSource, topic: str) -> str:
    bounds = source.bounds([topic])
    messages = sum(has.maximum - has.minimum for has in bounds.values())
    return f"{counted(messages, 'message')} in {counted(len(bounds), 'queue')}"


def _progress(source: RocketMQSource, topic: str, group: str) -> str:
    if not group:
        return "none is named; messages are pulled as TOOLS_CONSUMER"
    return f"{group} has offsets in {counted(len(source.committed(group, [topic])), 'queue')}"


def _last(source: RocketMQSource, topic: str) -> str:
    """Read the last message of the first queue that has one."""
    filled = [(queue, has) for queue, has in source.bounds([topic]).items() if has.maximum]
    for queue, has in filled[:1]:
        last = QueueRange(queue, max(has.maximum - 1, has.minimum), has.maximum)
        return f"{counted(sum(map(len, source.slices([last]))), 'message')} of {queue} was read"
    return "the queues are empty"
