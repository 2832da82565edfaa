"""The file in a query's checkpoint that names the store that the query writes to.

    pyrocket-sink.json    {"version": 1, "store": "<uuid>", "broker": "broker-a"}

The broker is there only if it was selected from those of a name server.

Without it, a query whose store is missing, for example because a disk is not mounted, would create
a new store in its place. The file is written only to a local checkpoint given by the option
`checkpointLocation`: Spark does not pass any other location to a sink.
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
    """The checkpoint directory of a running query."""

    path: Path

    @classmethod
    def of(cls, request: Request) -> "SinkCheckpoint | None":
        """Return the checkpoint of a streaming write; None if it is unknown or not local."""
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
        """The current micro-batch, whose offsets Spark saves first; 0 if none are saved."""
        return max(map(int, filter(str.isdigit, os.listdir(self.path / _OFFSETS))), default=0)

    def store(self) -> str:
        """Return the uuid of the store that the query wrote to last, or an empty string.

        Raises InvalidInputError (CHECKPOINT_DAMAGED).
        """
        return self._content().get("store", "")

    def broker(self) -> str:
        """Return the name of the broker that has this store, or an empty string.

        Raises InvalidInputError (CHECKPOINT_DAMAGED).
        """
        return self._content().get("broker", "")

    def _content(self) -> dict[str, str]:
        file = self.path / SINK_FILE
        try:
            content = json.loads(file.read_text())
            if content["version"] != _VERSION:
                raise ValueError(f"its version is {content['version']}")
            return {"store": str(content["store"]), "broker": str(content.get("broker", ""))}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInputError(
                f"{file} cannot be read: {error}. The file names the store that the query writes "
                "to.",
                remedy="Restore it with the rest of the checkpoint, or remove it.",
                code="CHECKPOINT_DAMAGED",
            ) from error

    def record(self, store: str, broker: str = "") -> None:
        """Record that the query writes to this store, and to this broker if a name is given.

        Does nothing if this is recorded already.
        """
        if (self.store(), self.broker()) == (store, broker):
            return
        draft = self.path / f".{SINK_FILE}.{uuid.uuid4().hex}"
        with draft.open("w") as file:
            name = {"broker": broker} if broker else {}
            json.dump({"version": _VERSION, "store": store, **name}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.path / SINK_FILE)
