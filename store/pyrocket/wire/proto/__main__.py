"""Compiles the `.proto` files of this folder.

Run `python -m pyrocket.wire.proto` after each change.
Needs grpcio-tools. The output is committed; a test checks that it is up to date.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
COMPILED = "descriptors.bin"


def compile_protos(folder: Path) -> None:
    """Write all files as one FileDescriptorSet to a folder."""
    from grpc_tools import protoc

    well_known = Path(protoc.__file__).parent / "_proto"
    files = sorted(path.name for path in FOLDER.glob("*.proto"))
    places = [f"-I{FOLDER}", f"-I{well_known}", f"--descriptor_set_out={folder / COMPILED}"]
    if done := protoc.main(["protoc", *places, "--include_imports", *files]):
        sys.exit(done)


if __name__ == "__main__":
    compile_protos(FOLDER)
