"""Reads a query's checkpoint: the files in which Spark saves its progress.

    metadata        {"id": …}: the query
    offsets/N       a version line, a JSON line with settings, and a line for each source: the
                    end of micro-batch N; written before it runs
    commits/N       written after micro-batch N has completed
    .N.crc          next to each file: a CRC-32 for every 512 bytes, if Spark's file manager
                    writes them; Spark does not read a file whose checksums do not match

Source: `HDFSMetadataLog`, `OffsetSeqLog`, `CommitLog` of Spark, `ChecksumFileSystem` of Hadoop.
"""

import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyrocket.errors import DataLossError, InvalidInputError, OptionError

from pyspark_pyrocket.options.target import absolute_path
from pyspark_pyrocket.sink.sink_checkpoint import SINK_FILE
from pyspark_pyrocket.source.stream_offset import StreamOffset, is_ours

OFFSETS, COMMITS, METADATA = "offsets", "commits", "metadata"
BACKUPS = "pyrocket-backup"
_VERSION = "v1"
_KNOWN = {OFFSETS, COMMITS, METADATA, "sources", "state", "operators", BACKUPS, SINK_FILE}
_CRC_HEADER, _CRC_CHUNK = 8, 512


@dataclass(frozen=True)
class PlannedBatch:
    """One file of `offsets/`.

    settings: its JSON line. sources: the line of each source, unparsed.
    """

    number: int
    settings: str
    sources: tuple[str, ...]
    committed: bool

    @property
    def planned_ms(self) -> int | None:
        """The time at which Spark planned it, in epoch ms; None if unknown."""
        try:
            return int(json.loads(self.settings)["batchTimestampMs"])
        except (ValueError, KeyError, TypeError):
            return None

    def ours(self) -> dict[int, StreamOffset]:
        """Return the offsets of pyrocket's sources, by their index in the query."""
        offsets = {}
        for index, line in enumerate(self.sources):
            value = _json_or_none(line)
            if is_ours(value):
                offsets[index] = StreamOffset.from_json(value)
        return offsets


@dataclass(frozen=True)
class Damage:
    """A file that Spark cannot read, and why.

    in_the_way: the file to remove so that Spark can start: this file or its checksums. Empty if
        removing a file does not help.
    """

    file: str
    reason: str
    in_the_way: str = ""


@dataclass(frozen=True)
class SparkCheckpoint:
    """The contents of a checkpoint directory.

    batches: the readable micro-batches, ascending; Spark retains the last hundred.
    planned: all micro-batch numbers in `offsets/`.
    foreign: files that neither Spark nor pyrocket writes.
    """

    path: Path
    query_id: str
    batches: tuple[PlannedBatch, ...]
    planned: tuple[int, ...] = ()
    foreign: tuple[str, ...] = ()
    damaged: tuple[Damage, ...] = ()

    @property
    def newest(self) -> PlannedBatch | None:
        """The last micro-batch whose plan can be read, or None."""
        return self.batches[-1] if self.batches else None

    def last(self) -> PlannedBatch:
        """Return `newest`. Raises InvalidInputError (CHECKPOINT_EMPTY)."""
        if self.newest is None:
            raise InvalidInputError(
                f"{self.path} has no readable micro-batch.",
                remedy="Start the query: it then starts where its options define. With"
                " startingOffsets=committed and an empty checkpointLocation, it starts at the"
                " offsets of a consumer group.",
                code="CHECKPOINT_EMPTY",
            )
        return self.newest

    @property
    def newest_committed(self) -> PlannedBatch | None:
        """The last micro-batch that was committed, or None."""
        return next((batch for batch in reversed(self.batches) if batch.committed), None)


def _checkpoint_path(directory: str) -> Path:
    """Return the local directory of a checkpoint. Raises OptionError if it is remote."""
    try:
        return Path(absolute_path(directory, os.getcwd()))
    except OptionError as error:
        raise OptionError(
            f"The checkpoint {directory!r} is not in a local or mounted directory.",
            remedy="Copy its metadata, offsets and commits to a local directory, and back.",
            code="CHECKPOINT_REMOTE",
        ) from error


def read_checkpoint(directory: str) -> SparkCheckpoint:
    """Read a checkpoint. Raises InvalidInputError (CHECKPOINT_NOT_FOUND)."""
    path = _checkpoint_path(directory)
    if not (path / OFFSETS).is_dir() and not (path / METADATA).is_file():
        raise InvalidInputError(
            f"there is no checkpoint of a streaming query in {path}.",
            remedy="Name the directory that is the query's checkpointLocation.",
            code="CHECKPOINT_NOT_FOUND",
        )
    damaged: list[Damage] = []
    planned = sorted(map(int, _numbers(path / OFFSETS)))
    committed = _committed(path, planned, damaged)
    batches = [
        batch
        for number in planned
        if (batch := _read_batch(path, number, number in committed, damaged))
    ]
    return SparkCheckpoint(
        path,
        _query_id(path, damaged),
        tuple(batches),
        tuple(planned),
        tuple(_foreign(path)),
        tuple(damaged),
    )


def crc_path(file: Path) -> Path:
    """Return the path of a file's checksums; it may not exist."""
    return file.with_name(f".{file.name}.crc")


def _committed(path: Path, planned: list[int], damaged: list[Damage]) -> set[int]:
    """Return the micro-batches that are committed."""
    committed = set()
    for number in sorted(map(int, _numbers(path / COMMITS))):
        name = f"{COMMITS}/{number}"
        if _lines(path, name, damaged, in_the_way=name) is None:
            continue
        if planned and number not in planned:
            damaged.append(Damage(name, f"There is no {OFFSETS}/{number} for this file.", name))
            continue
        committed.add(number)
    return committed


def _read_batch(
    path: Path, number: int, committed: bool, damaged: list[Damage]
) -> PlannedBatch | None:
    name = f"{OFFSETS}/{number}"
    lines = _lines(path, name, damaged)
    if lines is None:
        return None
    if len(lines) < 3 or not isinstance(_json_or_none(lines[1]), dict):
        damaged.append(Damage(name, "It has no settings and offsets after its first line."))
        return None
    batch = PlannedBatch(number, lines[1], tuple(lines[2:]), committed)
    try:
        batch.ours()
    except DataLossError as error:
        damaged.append(Damage(name, error.message))
        return None
    return batch


def _lines(
    path: Path, name: str, damaged: list[Damage], *, in_the_way: str = ""
) -> list[str] | None:
    """Return a file's lines; if it cannot be read, add the reason to `damaged` and return None."""
    file = path / name
    try:
        content = file.read_bytes()
        lines = content.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        damaged.append(Damage(name, f"It cannot be read: {error}", in_the_way))
        return None
    if not lines or lines[0] != _VERSION:
        first = repr(lines[0][:20]) if lines else "nothing"
        reason = f"It starts with {first} instead of {_VERSION!r}."
        damaged.append(Damage(name, reason, in_the_way))
        return None
    if not _crc_fits(file, content):
        sums = crc_path(file)
        reason = f"Its checksums in {sums.name} are wrong: Spark cannot read it."
        damaged.append(Damage(name, reason, str(sums.relative_to(path))))
    return lines


def _crc_fits(file: Path, content: bytes) -> bool:
    try:
        stored = crc_path(file).read_bytes()[_CRC_HEADER:]
    except FileNotFoundError:
        return True
    chunks = [content[at : at + _CRC_CHUNK] for at in range(0, len(content), _CRC_CHUNK)]
    return stored == b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)


def _query_id(path: Path, damaged: list[Damage]) -> str:
    try:
        return str(json.loads((path / METADATA).read_text())["id"])
    except FileNotFoundError:
        damaged.append(Damage(METADATA, "It is missing: Spark would start a new query."))
    except (OSError, ValueError, KeyError, TypeError) as error:
        damaged.append(Damage(METADATA, f"It cannot be read: {error!r}"))
    return ""


def _foreign(path: Path) -> list[str]:
    names = [entry.name for entry in path.iterdir() if entry.name not in _KNOWN]
    for folder in (OFFSETS, COMMITS):
        if (path / folder).is_dir():
            names += [f"{folder}/{name}" for name in os.listdir(path / folder)]
    return sorted(name for name in names if not _is_written_by_spark(Path(name).name))


def _is_written_by_spark(name: str) -> bool:
    bare = name.removeprefix(".").removesuffix(".crc")
    return bare.isdigit() if bare != METADATA else True


def _numbers(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return [name for name in os.listdir(folder) if name.isascii() and name.isdigit()]


def _json_or_none(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
