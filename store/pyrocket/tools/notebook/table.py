"""A table that is displayed as HTML in a notebook and as text elsewhere."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from typing import Any

_MAX_CHARACTERS = 120
"""Maximum length of a displayed value; the rows hold the complete value."""

_NUMBERS = (int, timedelta)


@dataclass(frozen=True, repr=False)
class Table:
    """Named columns and rows of plain values: int, str, bytes, datetime, timedelta, dict, None."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows by column name."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def column(self, name: str) -> list[Any]:
        """Return the values of one column."""
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def __repr__(self) -> str:
        return f"{safe(self.title)}\n{self.text()}"

    def text(self) -> str:
        """Return the column names and the rows, one per line, without the title."""
        # Characters of some scripts are two cells wide.
        from rich.cells import cell_len

        lines = [list(self.columns), *([shown(value) for value in row] for row in self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        numbers = [self.is_number(at) for at in range(len(self.columns))]

        def padded(at: int, text: str) -> str:
            room = " " * (widths[at] - cell_len(text))
            return room + text if numbers[at] else text + room

        texts = ("  ".join(padded(at, text) for at, text in enumerate(line)) for line in lines)
        return "\n".join(text.rstrip() for text in texts)

    def _repr_html_(self) -> str:
        heads = "".join(
            f"<th{self._align(at)}>{escape(name)}</th>" for at, name in enumerate(self.columns)
        )
        lines = "".join(f"<tr>{self._cells(row)}</tr>" for row in self.rows)
        caption = f"<caption>{escape(safe(self.title))}</caption>"
        return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"

    def _cells(self, row: tuple[Any, ...]) -> str:
        return "".join(
            f"<td{self._align(at)}>{escape(shown(value))}</td>" for at, value in enumerate(row)
        )

    def _align(self, at: int) -> str:
        return f' style="text-align:{"right" if self.is_number(at) else "left"}"'

    def is_number(self, at: int) -> bool:
        """Whether a column contains numbers."""
        return any(isinstance(row[at], _NUMBERS) for row in self.rows)


def shown(value: Any) -> str:
    """Return a value as text on one line, shortened, with control characters escaped."""
    if value is None:
        return "-"
    if isinstance(value, bool | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, timedelta):
        return _duration(int(value.total_seconds()))
    if isinstance(value, bytes):
        return _short(value.decode(errors="backslashreplace"))
    if isinstance(value, dict):
        return _short(", ".join(f"{name}={one}" for name, one in value.items()))
    return _short(str(value))


def _short(text: str) -> str:
    # A body may have megabytes: escape only the part that may be displayed.
    short = safe(text[: 4 * _MAX_CHARACTERS])
    cut = len(text) > 4 * _MAX_CHARACTERS or len(short) > _MAX_CHARACTERS
    return short[: _MAX_CHARACTERS - 1] + "…" if cut else short


def safe(text: str) -> str:
    """Return the text with all non-printable characters escaped, including line ends."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _duration(seconds: int) -> str:
    """Return a duration in its two largest units, such as `2h 5m`."""
    parts: list[str] = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
