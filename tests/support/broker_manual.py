"""Generates the table of settings in `store/BROKER.md` from the code.

python tests/support/broker_manual.py --write     updates the page
"""

import re
import sys
from pathlib import Path

from pyrocket.broker.settings import table

PAGE = Path(__file__).resolve().parents[2] / "store" / "BROKER.md"
_TABLE = re.compile(r"^\| setting \|.*?(?=\n\n)|^SETTINGS$", re.MULTILINE | re.DOTALL)


def rendered():
    """Return the table generated from the code."""
    lines = ["| setting | default | meaning | in broker.conf |", "|---|---|---|---|"]
    for row in table().values():
        default, java = (f"`{text}`" if text else "" for text in (row.default, row.java))
        lines.append(f"| `{row.name}` | {default} | {row.text} | {java} |")
    return "\n".join(lines)


def in_page():
    """Return the table in the page."""
    return _TABLE.search(PAGE.read_text())[0]


if __name__ == "__main__" and "--write" in sys.argv:
    PAGE.write_text(_TABLE.sub(lambda _: rendered(), PAGE.read_text()))
