"""The output of `python -m pyrocket.rpc.proto` is up to date with the `.proto` files."""

import pytest
from pyrocket.rpc.proto.__main__ import FOLDER, compile_protos


def test_the_descriptors_and_the_type_stubs_are_up_to_date(tmp_path):
    pytest.importorskip("grpc_tools")
    compile_protos(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = [*FOLDER.glob("*.bin"), *FOLDER.glob("*.pyi")]
    assert made == {path.name: path.read_bytes() for path in committed}
