"""Compiles the `.proto` files of this folder: `python -m pyrocket.rpc.proto`, after each change.

Needs grpcio-tools. The output is committed; a test checks that it is up to date.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
COMPILED = FOLDER / "descriptors.bin"


def compile_protos(target: Path) -> None:
    """Write all files as one FileDescriptorSet to `target`."""
    from grpc_tools import protoc

    well_known = Path(protoc.__file__).parent / "_proto"
    files = sorted(path.name for path in FOLDER.glob("*.proto"))
    places = [f"-I{FOLDER}", f"-I{well_known}", f"--descriptor_set_out={target}"]
    done = protoc.main(["protoc", "--include_imports", *places, *files])
    if done:
        sys.exit(done)


if __name__ == "__main__":
    compile_protos(COMPILED)
