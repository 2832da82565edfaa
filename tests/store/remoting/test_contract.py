"""The promises of the client on the fake cluster."""

import pytest
from support.remoting_contract import Client, RemotingContract, topic
from support.rocketmq_cluster import rocketmq

__all__ = ["topic"]


@pytest.fixture(scope="module", params=["4.9", "5.5"])
def cluster(request, tmp_path_factory):
    binary = request.param == "4.9"
    folder = tmp_path_factory.mktemp("rocketmq")
    with rocketmq(folder, version=request.param, binary_headers=binary) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster):
    client = Client(cluster.addresses)
    yield client
    client.close()


@pytest.fixture
def is_5(cluster):
    return cluster.is_5


class TestFakeCluster(RemotingContract):
    pass
