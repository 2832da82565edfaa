"""What a streaming sink reads and keeps in its query's checkpoint: which store it writes to.

    pyrocket-sink.json    {"version": 1, "store": "<uuid>"}

Without it a query whose store is gone, as where a disk is not mounted, would begin a new store in
its place. Only a local checkpoint that the option `checkpointLocation` names is known: Spark tells
a sink of no other.
"""

import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from pyrocket.errors import InvalidInputError, OptionError

from pyspark_pyrocket.options.target import Request, absolute_path

SINK_FILE = "pyrocket-sink.json"
_OFFSETS = "offsets"
_VERSION = 1


@dataclass(frozen=True)
class SinkCheckpoint:
    """A checkpoint directory that Spark has begun."""

    path: Path

    @classmethod
    def of(cls, request: Request) -> "SinkCheckpoint | None":
        """Return the checkpoint of a streaming write; None if it is not known or not local."""
        options = {name.lower(): value for name, value in request.options.items()}
        location = options.get("checkpointlocation", "")
        if not location.strip():
            return None
        try:
            path = Path(absolute_path(location, request.directory))
        except OptionError:  # On another file system.
            return None
        return cls(path) if (path / _OFFSETS).is_dir() else None

    @property
    def batch(self) -> int:
        """The micro-batch that is being written: Spark plans it here first. 0 before the first."""
        return max(map(int, filter(str.isdigit, os.listdir(self.path / _OFFSETS))), default=0)

    def store(self) -> str:
        """Return the uuid of the store that the query wrote to last; empty if none is noted.

        Raises InvalidInputError (CHECKPOINT_DAMAGED).
        """
        file = self.path / SINK_FILE
        try:
            content = json.loads(file.read_text())
            if content["version"] != _VERSION:
                raise ValueError(f"its version is {content['version']}")
            return str(content["store"])
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInputError(
                f"{file} cannot be read: {error}. It says which store the query writes to.",
                remedy="Restore it with the rest of the checkpoint, or remove it.",
                code="CHECKPOINT_DAMAGED",
            ) from error

    def keep(self, store: str) -> None:
        """Note that the query writes to this store; does nothing where that is noted."""
        if self.store() == store:
            return
        draft = self.path / f".{SINK_FILE}.{uuid.uuid4().hex}"
        with draft.open("w") as file:
            json.dump({"version": _VERSION, "store": store}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.path / SINK_FILE)
