"""A captured signature is valid for a limited time, at brokers and at name servers."""

import hmac
import time
from datetime import datetime, timezone

import grpc
import pytest
from pyrocket import Store
from pyrocket.base.credentials import AUTHORIZATION_KEY, DATE_KEY, SCHEME, sign
from pyrocket.broker.access import SignatureAge, read_access
from pyrocket.broker.settings import Settings
from pyrocket.errors import NotAuthenticatedError
from pyrocket.server.nameserver.route_table import RouteTable
from pyrocket.wire.errors import carried_error
from support import broker_process, name_server
from support.broker import served
from support.rocketmq_stub import ENDPOINTS, Stub, resource
from support.stores import FakeClock
from support.users import ADMIN, secret_of, write_users

NOW = "20261126T120000Z"


@pytest.fixture
def clock():
    seconds = datetime(2026, 11, 26, 12, tzinfo=timezone.utc).timestamp()
    return FakeClock(int(1000 * seconds))


@pytest.fixture
def in_zone(monkeypatch):
    def enter(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield enter
    monkeypatch.undo()
    time.tzset()


def age(clock, max_s=900):
    return SignatureAge(max_s, clock)


def test_the_default_is_15_minutes():
    assert Settings().signature_age == 900


@pytest.mark.parametrize(
    "date",
    [
        *(NOW, "20261126T114500Z", "20261126T121500Z"),
        *("2026-11-26T12:00:00Z", "2026-11-26T12:00:00.123456789+00:00"),
        *("2026-11-26T20:00:00+08:00", "2026-11-26T02:30:00-09:30"),
    ],
)
def test_a_date_close_to_the_clock_is_accepted(clock, in_zone, date):
    in_zone("UTC")
    age(clock).check(date.encode())


@pytest.mark.parametrize(
    "date",
    [
        *("19700101T000000Z", "20261126T114459Z", "20261126T121501Z", "20261126T200000Z"),
        *("2026-11-26T12:00:00+08:00", "", "now", "20261399T120000Z", "\xff"),
        *("00010101T000000+1400", "99991231T235959-1400", "20261126T120000Z\n"),
    ],
)
def test_any_other_date_is_refused_with_both_clocks(clock, in_zone, date):
    in_zone("UTC")
    with pytest.raises(NotAuthenticatedError) as caught:
        age(clock).check(date.encode())
    assert caught.value.code == "UNAUTHENTICATED"
    assert NOW in caught.value.message
    assert repr(date) in caught.value.message
    age(clock, 0).check(date.encode())


def test_the_local_time_of_official_clients_is_accepted_in_the_time_zone_of_the_broker(
    clock, in_zone
):
    in_zone("Asia/Shanghai")
    for date in (NOW, "20261126T200000Z"):
        age(clock).check(date.encode())
    with pytest.raises(NotAuthenticatedError):
        age(clock).check(b"20261126T160000Z")


def test_a_wrong_signature_does_not_reveal_the_clock(tmp_path, clock):
    access = read_access(str(write_users(tmp_path, a=ADMIN)), age(clock))
    with pytest.raises(NotAuthenticatedError) as caught:
        access.check_signature("a", b"19700101T000000Z", b"wrong")
    assert NOW not in str(caught.value)


def signed_at(date):
    """Return the metadata of a call that was signed at a date."""
    signature = hmac.new(secret_of("a").encode(), date.encode(), "sha1").hexdigest()
    text = f"{SCHEME} Credential=a, SignedHeaders={DATE_KEY}, Signature={signature}"
    return (DATE_KEY, date), (AUTHORIZATION_KEY, text)


def test_a_captured_signature_is_refused_by_both_services_of_a_broker_and_by_a_name_server(
    tmp_path,
):
    access = read_access(str(write_users(tmp_path, a=ADMIN)), SignatureAge(900))
    captured, fresh = signed_at("19700101T000000Z"), sign("a", secret_of("a"))
    store = Store.open(tmp_path / "store", create=True)
    with (
        served(store, access=lambda: access) as address,
        name_server.serving(RouteTable(), access=lambda: access) as other,
    ):
        for place, call in ((address, "pyrocket.v1.Broker/Topics"), (other, NAME_SERVER)):
            with grpc.insecure_channel(place) as channel:
                method = channel.unary_unary(f"/{call}")
                method(b"", metadata=fresh, timeout=20)
                with pytest.raises(grpc.RpcError) as caught:
                    method(b"", metadata=captured, timeout=20)
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
                assert "19700101T000000Z" in str(carried_error(caught.value, place))
        for metadata, code in ((captured, "UNAUTHORIZED"), (fresh, "OK")):
            stub = Stub(address, metadata=metadata)
            assert stub.code("QueryRoute", topic=resource("t"), endpoints=ENDPOINTS) == code
            stub.close()


def code_at(address, call, date):
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(f"/{call}")(b"", metadata=signed_at(date), timeout=20)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def test_the_setting_counts_for_brokers_and_name_servers(tmp_path):
    flags = ("--users", write_users(tmp_path, a=ADMIN), "--signature-age", "0")
    with broker_process.running(tmp_path / "s", *flags) as (_, found):
        answered = code_at(found.listen[0], "pyrocket.v1.Broker/Topics", "19700101T000000Z")
        assert answered is grpc.StatusCode.OK
    with name_server.running(*flags) as (_, address):
        assert code_at(address, NAME_SERVER, "19700101T000000Z") is grpc.StatusCode.OK


NAME_SERVER = "pyrocket.v1.NameServer/Brokers"
