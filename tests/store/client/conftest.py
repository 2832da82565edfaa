"""The servers that the tests of clients run against: a store in this process, and a broker."""

import pytest
from pyrocket import Store
from support.broker import served


@pytest.fixture(params=["path", "endpoint"])
def at(request, path):
    """The argument that connects a client to the store at `path`."""
    if request.param == "path":
        yield {"path": path}
        return
    with served(Store.open(path)) as address:
        yield {"endpoint": address}
