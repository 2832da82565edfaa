"""TLS and users of RocketMQ's own brokers: what the client of the remoting protocol promises."""

import json

import pyarrow as pa
import pytest
from interop.rocketmq import NameServer
from pyrocket import RocketMQCluster, RocketMQSink
from pyrocket.base.credentials import Credentials
from pyrocket.errors import StorePermissionError, TransportError
from pyrocket.remoting.connection import ConnectionPool
from pyrocket.remoting.requests import commit, pull, topic_offsets, write_topic
from pyrocket.values.admin import TopicConfig
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from support.certificates import write_certificate
from support.commands import document
from support.remoting_contract import CALL_S, eventually
from support.transports import disconnect

USER = {"access_key": "sparkuser", "secret_key": "sparksecret"}
PLAIN_ACL = """
globalWhiteRemoteAddresses: []
accounts:
- accessKey: sparkuser
  secretKey: sparksecret
  admin: true
- accessKey: readeruser
  secretKey: readersecret
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - readable=SUB
  groupPerms:
  - TOOLS_CONSUMER=SUB
"""


@pytest.fixture(scope="module")
def secured(java_version, tmp_path_factory):
    """A broker with users and a certificate; yields a function that returns a pool."""
    folder = tmp_path_factory.mktemp("secured")
    ca, key = write_certificate(folder)
    (folder / "acl.yml").write_text(PLAIN_ACL)
    jvm = ["-Dtls.test.mode.enable=false", f"-Dtls.server.certPath={ca}"]
    jvm += [f"-Dtls.server.keyPath={key}"]
    names = NameServer(java_version.classes, folder, jvm)
    peer = f"127.0.0.1:{java_version.peer.port}"
    settings = {"aclEnable": "true", "namesrvAddr": f"{peer};127.0.0.1:{names.port}"}
    if java_version.is_5:
        user = {"username": USER["access_key"], "password": USER["secret_key"]}
        settings |= {"aclEnable": "false", "initAuthenticationUser": json.dumps(user)}
        for kind in ("authentication", "authorization"):
            package, name = f"org.apache.rocketmq.auth.{kind}.provider", kind.capitalize()
            settings[f"{kind}Enabled"] = "true"
            settings[f"{kind}Provider"] = f"{package}.Default{name}Provider"
            settings[f"{kind}MetadataProvider"] = f"{package}.Local{name}MetadataProvider"
    jvm += [f"-Drocketmq.acl.plain.file=/../../../../../../../..{folder}/acl.yml"]
    pools = []
    with java_version.broker(folder / "store", jvm=jvm, **settings) as broker:

        def pool(**credentials):
            address = f"127.0.0.1:{broker.port}"
            pools.append(ConnectionPool(address, Credentials(**credentials), "broker broker-a"))
            return pools[-1]

        pool.ca, pool.pem, pool.servers = ca.read_bytes(), ca, f"127.0.0.1:{names.port}"
        pool(**USER).ask([write_topic(TopicConfig("readable", 1, 1))], CALL_S)
        yield pool
        for one in pools:
            one.close()
    names.kill()


def test_a_signed_request_is_answered(secured):
    (offsets,) = secured(**USER).ask([topic_offsets("readable")], CALL_S)
    assert [*offsets] == [0]


@pytest.mark.parametrize(
    "wrong", [{}, USER | {"secret_key": "other"}, USER | {"access_key": "unknown"}]
)
def test_a_request_of_another_user_is_refused_by_name(secured, wrong):
    for call in (topic_offsets("readable"), pull("readable", 0, 0, 1)):
        with pytest.raises(StorePermissionError, match="'readable'") as caught:
            secured(**wrong).ask([call], CALL_S)
        assert caught.value.code == "PERMISSION_DENIED"


def test_a_user_without_a_right_is_told_which(secured, java_version):
    if java_version.is_5:
        pytest.skip("policies of RocketMQ 5 are written by mqadmin")
    reader = {"access_key": "readeruser", "secret_key": "readersecret"}
    (found,) = secured(**reader).ask([pull("readable", 0, 0, 1)], CALL_S)
    assert found.maximum == 0
    for call in (pull("other", 0, 0, 1), commit("other", "readable", 0, 1)):
        with pytest.raises(StorePermissionError) as caught:
            secured(**reader).ask([call], CALL_S)
        assert "SUB" in caught.value.remedy


def test_an_encrypted_connection_checks_the_certificate(secured):
    encrypted = USER | {"tls": True}
    calls = [topic_offsets("readable")] * 20
    assert len(secured(**encrypted, ca=secured.ca).ask(calls, CALL_S)) == 20
    with pytest.raises(TransportError, match=r"endpoint\.serverName"):
        secured(**encrypted, ca=secured.ca, server_name="other.example").ask(calls, CALL_S)
    with pytest.raises(TransportError, match="Trust the CA certificate"):
        secured(**encrypted).ask(calls, CALL_S)


@pytest.fixture
def flags(secured, tmp_path):
    """The options of a command that may do everything."""
    secret = tmp_path / "secret"
    secret.write_text(USER["secret_key"])
    secret.chmod(0o600)
    return {
        "--namesrv": secured.servers,
        "--ca": secured.pem,
        "--access-key": USER["access_key"],
        "--secret-key-file": secret,
    }


def command(*words, status=0, **flags):
    return document(*words, *(part for flag in flags.items() for part in flag), status=status)


def test_commands_of_a_user_with_tls(secured, flags):
    shown = command("topic", "show", "readable", **flags)
    assert (shown["readQueues"], shown["messages"]) == (1, 0)
    (sent,) = command("message", "send", "readable", "by hand", **flags)["messages"]
    find = ("message", "find", "readable", "--id", sent["msgId"])
    (found,) = eventually(lambda: command(*find, **flags)["messages"])
    assert found["body"] == "by hand"
    (broker,) = command("broker", "list", **flags)["brokers"]
    assert "broker-a" in broker.values()


@pytest.mark.parametrize(
    ("changed", "code", "named"),
    [
        ({"--access-key": "unknown"}, "PERMISSION_DENIED", "readable"),
        ({"--server-name": "other.example"}, "TRANSPORT_FAILED", "--server-name"),
        ({"--ca": "other.pem"}, "TRANSPORT_FAILED", "--ca"),
    ],
)
def test_a_command_without_a_right_or_trust_says_which(
    secured, flags, tmp_path, monkeypatch, changed, code, named
):
    monkeypatch.chdir(tmp_path)
    write_certificate(tmp_path, "other")
    error = command("topic", "show", "readable", status=2, **flags | changed)["error"]
    assert error["code"] == code
    assert named in error["message"] + error["remedy"]


def test_rows_are_written_and_read_by_a_user_with_tls(secured):
    trusted = Credentials(**USER, tls=True, ca=secured.ca)
    cluster = RocketMQCluster([secured.servers], trusted)
    rows = pa.record_batch({"body": pa.array([b"%d" % number for number in range(500)])})
    RocketMQSink(cluster, seconds=20).append(rows, topic="readable")
    cluster.close()
    options = {
        "namesrv": secured.servers,
        "topic": "readable",
        "endpoint.ca": str(secured.pem),
        "endpoint.tls": "true",
        "accessKey": USER["access_key"],
        "secretKey": USER["secret_key"],
    }
    reader = DefaultSource(options).reader(default_columns(kafka=False, headers=False, text=False))

    def found():
        batches = [batch for task in reader.partitions() for batch in reader.read(task)]
        return {body for batch in batches for body in batch["body"].to_pylist()}

    eventually(lambda: found() >= {*rows["body"].to_pylist()})
    disconnect()
