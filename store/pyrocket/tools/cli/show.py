"""Output of the commands: tables and messages for people, JSON values for programs."""

import base64
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import click

from pyrocket.message import StoredMessage

_BODY_CHARACTERS = 1000
"""Limit of a message body in the output for people; `--json` has the whole body."""


def show_rows(columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """Print a table, one line per row: text is aligned left, numbers right."""
    from pyrocket.tools.notebook.table import Table

    click.echo(Table("", columns, rows).text())


def message_line(one: StoredMessage) -> str:
    """Return a message on one line, the body last, with control characters escaped."""
    from pyrocket.tools.notebook.table import safe

    labels: dict[str, object] = {
        "queue": one.queue_id,
        "offset": one.queue_offset,
        "stored": _iso(one.store_timestamp),
    }
    if one.tags:
        labels["tags"] = one.tags
    if one.keys:
        labels["keys"] = ",".join(one.keys)
    labels |= _user_properties(one)
    head = " ".join(f"{name}={value}" for name, value in labels.items())
    text = one.body[: 4 * _BODY_CHARACTERS].decode(errors="backslashreplace")[:_BODY_CHARACTERS]
    rest = f"… ({len(one.body):,} bytes)" if len(one.body) > len(text.encode()) else ""
    return f"{safe(head)}  {safe(text)}{rest}"


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
        "properties": _user_properties(one),
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


def _user_properties(one: StoredMessage) -> dict[str, str]:
    from pyrocket.formats.properties import RESERVED_PROPERTIES

    return {name: each for name, each in one.properties.items() if name not in RESERVED_PROPERTIES}


def _body(body: bytes) -> dict[str, str]:
    try:
        return {"bodyEncoding": "utf-8", "body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyEncoding": "base64", "body": base64.b64encode(body).decode()}
