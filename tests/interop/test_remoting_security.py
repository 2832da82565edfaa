"""TLS and users of RocketMQ's own brokers: what the client of the remoting protocol promises."""

import json

import pytest
from pyrocket.base.credentials import Credentials
from pyrocket.errors import StorePermissionError, TransportError
from pyrocket.remoting.connection import ConnectionPool
from pyrocket.remoting.requests import commit, pull, topic_offsets, write_topic
from pyrocket.values.admin import TopicConfig
from support.certificates import write_certificate
from support.remoting_contract import CALL_S

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
    jvm += [f"-Dtls.server.keyPath={key}", ""]
    settings = {"aclEnable": "true"}
    if java_version.is_5:
        user = {"username": USER["access_key"], "password": USER["secret_key"]}
        settings = {"initAuthenticationUser": json.dumps(user)}
        for kind in ("authentication", "authorization"):
            package, name = f"org.apache.rocketmq.auth.{kind}.provider", kind.capitalize()
            settings[f"{kind}Enabled"] = "true"
            settings[f"{kind}Provider"] = f"{package}.Default{name}Provider"
            settings[f"{kind}MetadataProvider"] = f"{package}.Local{name}MetadataProvider"
    jvm[-1] = f"-Drocketmq.acl.plain.file=/../../../../../../../..{folder}/acl.yml"
    pools = []
    with java_version.broker(folder / "store", jvm=jvm, **settings) as broker:

        def pool(**credentials):
            address = f"127.0.0.1:{broker.port}"
            pools.append(ConnectionPool(address, Credentials(**credentials), "broker broker-a"))
            return pools[-1]

        pool.ca = ca.read_bytes()
        pool(**USER).ask([write_topic(TopicConfig("readable", 1, 1))], CALL_S)
        yield pool
        for one in pools:
            one.close()


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
