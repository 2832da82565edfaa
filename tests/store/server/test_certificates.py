"""The expiry of certificates is reported before and after, to operators and to clients."""

import asyncio
import logging
import time

import pytest
from pyrocket import Store
from pyrocket.base.clock import system_clock
from pyrocket.base.credentials import Credentials
from pyrocket.errors import TransportError
from pyrocket.remote.broker import RemoteBroker
from pyrocket.remote.client import Client, Timeouts
from pyrocket.remote.connection import Connection
from pyrocket.remote.lookup import RouteLookup
from pyrocket.server.tls import Certificate
from support import name_server
from support.broker import served
from support.broker_process import metric, running, start, wait_until_it_serves
from support.certificates import write_certificate
from support.stores import FakeClock

DAY_MS = 24 * 3_600_000


def certificate(folder, days, clock=system_clock):
    pem, key = write_certificate(folder, days=days)
    return Certificate(str(pem), str(key), clock)


def test_an_expiry_is_logged_once_a_day_from_14_days_before(tmp_path, caplog):
    clock = FakeClock(system_clock())
    one = certificate(tmp_path, 30, clock)
    levels = []
    for _ in range(34):
        one.log_if_it_expires()
        one.log_if_it_expires()
        levels.append([record.levelno for record in caplog.records])
        caplog.clear()
        clock.now += DAY_MS
    assert levels[:15] == [[]] * 15
    assert levels[16:30] == [[logging.WARNING]] * 14
    assert levels[31:] == [[logging.ERROR]] * 3


def test_a_renewed_certificate_ends_the_warnings(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("pyrocket.broker.files._LOOK_S", 0)
    one = certificate(tmp_path, 3)
    one.log_if_it_expires()
    assert "expires at" in caplog.text
    before = one.expiry_s
    write_certificate(tmp_path, days=90)
    caplog.clear()
    one.log_if_it_expires()
    assert one.expiry_s > before + 80 * DAY_MS / 1000
    assert "expires" not in caplog.text


def test_a_broker_logs_an_expired_certificate_and_has_a_metric(tmp_path):
    pem, key = write_certificate(tmp_path, days=-1)
    path, tls = tmp_path / "store", ("--tls-certificate", pem, "--tls-key", key)
    process = start(path, "--listen", "127.0.0.1:0", *tls, "--metrics", "127.0.0.1:0")
    found = wait_until_it_serves(process, path)
    expiry_s = metric(found, "pyrocket_certificate_expiry_seconds", "node_type")["broker"]
    assert -2 * DAY_MS < 1000 * expiry_s - system_clock() < -DAY_MS / 2
    process.terminate()
    assert f"the certificate {pem} expired at" in process.communicate(timeout=60)[1]


async def hello(address, trust):
    broker = RemoteBroker(address, trust)
    try:
        await broker.hello(20)
    finally:
        await broker.close()


CALLS = {
    "reader": lambda address, trust: Client(Connection(address, trust)).call("Topics"),
    "client": lambda address, trust: asyncio.run(hello(address, trust)),
    "route": lambda address, trust: RouteLookup([address], trust).brokers(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_remedy_for_an_expired_certificate_names_its_dates(tmp_path, call):
    pem, _ = write_certificate(tmp_path, days=-1)
    trust = Credentials(tls=True, ca=pem.read_bytes())
    one = Certificate(str(pem), str(pem.with_suffix(".key")))
    with (
        served(Store.open(tmp_path / "store", create=True), certificate=one) as address,
        pytest.raises(TransportError) as caught,
    ):
        call(address, trust)
    remedy = caught.value.remedy
    assert f"{one_day(one)} UTC" in remedy, caught.value
    assert "Renew it" in remedy


@pytest.mark.parametrize("call", [CALLS["reader"], CALLS["client"]], ids=["reader", "client"])
def test_a_certificate_must_have_the_name_that_the_client_was_given(tmp_path, call):
    pem, _ = write_certificate(tmp_path, host="broker.example")
    one = Certificate(str(pem), str(pem.with_suffix(".key")))
    trust = {"tls": True, "ca": pem.read_bytes()}
    with served(Store.open(tmp_path / "store", create=True), certificate=one) as address:
        call(address, Credentials(**trust, server_name="broker.example"))
        for name in ("", "other.example"):
            with pytest.raises(TransportError):
                call(address, Credentials(**trust, server_name=name))


def test_a_certificate_with_another_name_is_reported_at_once(tmp_path):
    pem, _ = write_certificate(tmp_path, host="broker.example")
    one = Certificate(str(pem), str(pem.with_suffix(".key")))
    times = Timeouts(total=60, first=60)
    with served(Store.open(tmp_path / "store", create=True), certificate=one) as address:
        trust = Credentials(tls=True, ca=pem.read_bytes())
        began = time.monotonic()
        with pytest.raises(TransportError) as caught:
            Client(Connection(address, trust), times).call("Topics")
    assert time.monotonic() - began < 30
    assert "`endpoint.serverName`" in caught.value.remedy


def one_day(one):
    from datetime import datetime, timezone

    return datetime.fromtimestamp(one.expiry_s, timezone.utc).strftime("%Y-%m-%d %H:%M")


def test_a_broker_says_why_it_cannot_register_at_a_name_server_with_an_expired_certificate(
    tmp_path,
):
    pem, key = write_certificate(tmp_path, days=-1)
    path = tmp_path / "store"
    with name_server.running("--tls-certificate", pem, "--tls-key", key) as (_, address):
        given = ("--nameserver", address, "--nameserver-ca", pem)
        with running(path, *given) as (process, _):
            process.terminate()
            assert "Renew it" in process.communicate(timeout=60)[1]
