"""Checks a broker step by step; the first failed step of an address ends its checks."""

import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

from pyrocket import Client, Connection, Credentials, Timeouts
from pyrocket.base.arguments import counted
from pyrocket.errors import NotAuthenticatedError, PyrocketError
from pyrocket.tools.cli.frame import with_flags

from pyspark_pyrocket.tools.doctor.report import Check, fail, ok, warn

STEP_TIMEOUT_S = 5
CLOCK_DIFFERENCE_S = 5

_Step = Callable[[], Check]


def check_endpoint(addresses: str, credentials: Credentials) -> list[Check]:
    """Check each address step by step: name, port, TLS, credentials, store, clock, rights."""
    listed = [address.strip() for address in addresses.split(",")]
    remedy = "Start `pyrocket broker` there with --listen for this address, or check firewalls."
    checks = list[Check]()
    for address in listed:
        steps = [*reachable(address, credentials, remedy)]
        checks += steps
        if not any(check.remedy for check in steps):
            checks += _calls(address, credentials)
    return checks


def reachable(address: str, credentials: Credentials, remedy: str) -> Iterator[Check]:
    """Check name, port and TLS of a server; the remedy is that for a port without a server."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not (host and port.isdigit()):
        yield fail(
            f"{address}: name", "the address is not host:port", "Write it as localhost:8081."
        )
        return
    steps: list[_Step] = [
        lambda: _name(address, host),
        lambda: _port(address, host, int(port), remedy),
    ]
    if credentials.tls:
        steps.append(lambda: _tls(address, host, int(port), credentials))
    for step in steps:
        check = step()
        yield check
        if check.remedy:
            return


def _name(address: str, host: str) -> Check:
    try:
        addresses = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError as error:
        return fail(f"{address}: name", f"{host}: {error}", "Check the host's name and the DNS.")
    return ok(f"{address}: name", f"{host} is {', '.join(sorted(map(str, addresses)))}")


def _port(address: str, host: str, port: int, remedy: str) -> Check:
    try:
        socket.create_connection((host, port), STEP_TIMEOUT_S).close()
    except OSError as error:
        return fail(f"{address}: port", str(error), remedy)
    return ok(f"{address}: port", "a process is listening")


def _tls(address: str, host: str, port: int, credentials: Credentials) -> Check:
    name = f"{address}: TLS"
    try:
        cadata = credentials.ca.decode() if credentials.ca else None
        context = ssl.create_default_context(cadata=cadata)
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection((host, port), STEP_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            version = secure.version()
    except ssl.SSLCertVerificationError as error:
        remedy = "Use the host name in its certificate, and set its issuer with --ca."
        return fail(name, error.verify_message, remedy)
    except (OSError, ValueError) as error:
        return fail(name, str(error), "Omit --tls for a broker without a certificate.")
    return ok(name, f"{version}, the certificate is valid for {host}")


def _calls(address: str, credentials: Credentials) -> Iterator[Check]:
    times = Timeouts(connect=STEP_TIMEOUT_S, total=STEP_TIMEOUT_S, first=STEP_TIMEOUT_S)
    client = Client(Connection(address, credentials), times)
    try:
        hello, topics = client.call("Hello"), client.call("Topics").value
    except NotAuthenticatedError as error:
        yield fail(f"{address}: credentials", error.message, with_flags(error.remedy))
    except PyrocketError as error:
        remedy = "Use --tls if the broker has a certificate." if not credentials.tls else ""
        yield fail(f"{address}: calls", error.message, remedy or "See the broker's log.")
    else:
        key = credentials.access_key
        accepted = f"the user {key} is accepted" if key else "the broker needs none"
        yield ok(f"{address}: credentials", accepted)
        yield _store(address, hello)
        yield _clock(address, hello.now_ms)
        yield _rights(address, len(topics))
    finally:
        client.close()


def _store(address: str, hello: Any) -> Check:
    finding = (
        f"pyrocket {hello.release}, broker {hello.broker}, store {hello.store or 'without id'}"
    )
    return ok(f"{address}: store", finding)


def _clock(address: str, now_ms: int) -> Check:
    ahead = now_ms / 1000 - datetime.now(timezone.utc).timestamp()
    if abs(ahead) > CLOCK_DIFFERENCE_S:
        finding = f"the broker's clock differs from this machine's by {ahead:+.0f} s"
        return warn(
            f"{address}: clock",
            finding,
            "Synchronize the clocks (NTP); messages are stored with the broker's time.",
        )
    return ok(f"{address}: clock", "equals this machine's")


def _rights(address: str, count: int) -> Check:
    if count == 0:
        return warn(
            f"{address}: rights",
            "this user cannot access any topic",
            "Create a topic, or add a rule for this user to the broker's users file.",
        )
    return ok(f"{address}: rights", counted(count, "topic"))
