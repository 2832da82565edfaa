"""The servers that the tests of clients run against: a store in this process, and a broker."""

import pytest
from pyrocket import Store
from support.broker import served


@pytest.fixture(params=["path", pytest.param("endpoint", marks=pytest.mark.heavy)])
def at(request, path):
    """The argument that connects a client to the store at `path`.

    Tests that should run with both servers every time are parametrised with `at`.
    """
    if request.param == "path":
        yield {"path": path}
        return
    with served(Store.open(path)) as address:
        yield {"endpoint": address}
