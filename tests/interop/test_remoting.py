"""The client of the remoting protocol keeps its promises on RocketMQ's own servers."""

import pytest
from support.remoting_contract import Client, RemotingContract, topic

__all__ = ["topic"]


@pytest.fixture(scope="module")
def client(java_version, tmp_path_factory):
    folder = tmp_path_factory.mktemp("remoting") / "store"
    # Topics are created for senders that ask for it; groups are not.
    with java_version.broker(folder, autoCreateSubscriptionGroup="false"):
        client = Client([f"127.0.0.1:{java_version.peer.port}"])
        yield client
        client.close()


@pytest.fixture
def is_5(java_version):
    return java_version.is_5


class TestJavaCluster(RemotingContract):
    pass
