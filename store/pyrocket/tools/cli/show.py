"""Output of the commands: tables and messages as text, or JSON values."""

import base64
import json
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from pyrocket.base.config import parse_duration
from pyrocket.errors import OptionError
from pyrocket.values.message import StoredMessage

if TYPE_CHECKING:
    from pyrocket.tools.notebook.tables import Table

_BODY_CHARACTERS = 1000
"""Maximum length of a message body in text output; `--json` has the complete body."""


def show_rows(columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """Print a table, one line per row: text is aligned left, numbers right."""
    from pyrocket.tools.notebook.tables import Table

    show_table(Table("", columns, rows))


def show_table(table: "Table") -> None:
    """Print a table: with rich's layout on a terminal, as plain lines elsewhere."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from pyrocket.tools.notebook.tables import shown

    if not Console().is_terminal:
        click.echo(table.text())
        return
    drawn = RichTable(box=box.SIMPLE_HEAD, header_style="bold")
    for at, name in enumerate(table.columns):
        drawn.add_column(Text(name), justify="right" if table.is_number(at) else "left")
    for row in table.rows:
        drawn.add_row(*(Text(shown(value)) for value in row))
    Console().print(drawn)


def message_line(one: StoredMessage) -> str:
    """Return a message as one line that ends with its body; control characters are escaped."""
    from pyrocket.tools.notebook.tables import safe

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


def format_option(text: str) -> Callable[[StoredMessage], str]:
    """Parse a template such as `{offset} {body}` to a function; for the option's `type`."""
    template = text.replace("\\t", "\t").replace("\\n", "\n")
    try:
        template.format_map(dict.fromkeys(FORMAT_FIELDS, ""))
    except (KeyError, IndexError, ValueError, AttributeError):
        names = ", ".join(FORMAT_FIELDS)
        raise click.BadParameter(
            f"{text!r} is not a template such as '{{offset}} {{body}}'. The fields are {names}."
        ) from None
    return lambda message: template.format_map(_format_fields(message))


FORMAT_FIELDS = ("topic", "queue", "offset", "id", "stored", "tags", "keys", "properties", "body")


def _format_fields(one: StoredMessage) -> dict[str, str]:
    """Return the fields as text. On a terminal, control characters are escaped."""
    from pyrocket.tools.notebook.tables import safe

    values = (
        *(one.topic, str(one.queue_id), str(one.queue_offset), one.msg_id),
        *(_iso(one.store_timestamp) or "", one.tags or "", " ".join(one.keys)),
        json.dumps(_user_properties(one), ensure_ascii=False),
        one.body.decode(errors="backslashreplace"),
    )
    escape = safe if sys.stdout.isatty() else str
    return {name: escape(value) for name, value in zip(FORMAT_FIELDS, values, strict=True)}


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


def time_ms(text: str, now_ms: Callable[[], int], words: str = "") -> int:
    """Parse a time to epoch milliseconds: `-1h` before now, ISO-8601, or epoch milliseconds.

    A time without a zone is in UTC. `now_ms` is called only for a time before now. `words` are what
    the caller accepts instead of a time, for the error.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    ago = parse_duration(text[1:].lower()) if text.startswith("-") else None
    if ago is not None:
        return now_ms() - ago
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return int((time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise OptionError(
            f"{text!r} is not a time.",
            remedy=f"Write {words}-1h (an hour ago), 2026-11-23T04:00:00Z, or milliseconds since"
            " 1970.",
            code="CLI_TIME",
        ) from None


def iso(time: datetime | None) -> str | None:
    """Return a time in UTC as ISO-8601 with milliseconds."""
    if time is None:
        return None
    return time.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _iso(ms: int) -> str | None:
    return iso(datetime.fromtimestamp(ms / 1000, timezone.utc))


def _user_properties(one: StoredMessage) -> dict[str, str]:
    from pyrocket.formats.properties import RESERVED_PROPERTIES

    return {name: text for name, text in one.properties.items() if name not in RESERVED_PROPERTIES}


def _body(body: bytes) -> dict[str, str]:
    try:
        return {"bodyEncoding": "utf-8", "body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyEncoding": "base64", "body": base64.b64encode(body).decode()}
