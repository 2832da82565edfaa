"""What commands print of a store's contents: rows for people, JSON values for programs."""

import base64
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import click

from pyrocket.message import StoredMessage

_BODY_CHARACTERS = 1000
"""Of a body that people read; with `--json` it is whole."""


def show_rows(columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """Print a table, text to the left and numbers to the right; each row is one line."""
    from pyrocket.tools.notebook.table import Table

    click.echo(Table("", columns, rows).text())


def message_line(one: StoredMessage) -> str:
    """Return a message on one line, the body last, without anything that a terminal obeys."""
    from pyrocket.tools.notebook.table import safe

    labels = {
        "queue": one.queue_id,
        "offset": one.queue_offset,
        "stored": _iso(one.store_timestamp),
    }
    if one.tags:
        labels["tags"] = one.tags
    if one.keys:
        labels["keys"] = ",".join(one.keys)
    said = " ".join(f"{name}={value}" for name, value in {**labels, **_user(one)}.items())
    text = one.body[: 4 * _BODY_CHARACTERS].decode(errors="backslashreplace")[:_BODY_CHARACTERS]
    rest = f"… ({len(one.body):,} bytes)" if len(one.body) > len(text.encode()) else ""
    return f"{safe(said)}  {safe(text)}{rest}"


def message_document(one: StoredMessage) -> dict[str, Any]:
    """Return a message as JSON values; `bodyEncoding` is `utf-8`, or `base64` for other bytes."""
    return {
        "topic": one.topic,
        "queueId": one.queue_id,
        "queueOffset": one.queue_offset,
        "physicalOffset": one.physical_offset,
        "msgId": one.msg_id,
        "tags": one.tags,
        "keys": list(one.keys),
        "properties": _user(one),
        "bornTimestamp": _iso(one.born_timestamp),
        "storeTimestamp": _iso(one.store_timestamp),
        "bornHost": one.born_host,
        "storeHost": one.store_host,
        "flag": one.flag,
        "reconsumeTimes": one.reconsume_times,
        **_body(one.body),
    }


def iso(time: datetime | None) -> str | None:
    """Return a time in UTC as ISO-8601 with milliseconds."""
    if time is None:
        return None
    return time.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _iso(ms: int) -> str | None:
    return iso(datetime.fromtimestamp(ms / 1000, timezone.utc))


def _user(one: StoredMessage) -> dict[str, str]:
    from pyrocket.formats.properties import RESERVED_PROPERTIES

    return {name: each for name, each in one.properties.items() if name not in RESERVED_PROPERTIES}


def _body(body: bytes) -> dict[str, str]:
    try:
        return {"bodyEncoding": "utf-8", "body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyEncoding": "base64", "body": base64.b64encode(body).decode()}
