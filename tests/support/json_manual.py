"""Compares the output of `--json` with the tables in `store/JSON.md`."""

import re
from collections import defaultdict
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "store" / "JSON.md"
TYPES = {"text": str, "number": (int, float), "boolean": bool, "object": dict}
_ROW = re.compile(r"\| `(\w+)` \| (.+?) \| .+ \|")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_LINK = r"\[([^]]+)\]\(#[\w-]+\)"


def parse(text):
    """Return two maps from the names of commands and parts.

    The first map contains their fields with types, the second the parts whose fields they include.
    """
    found = defaultdict(dict)
    includes = {}
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        names = re.findall(r"`(.+?)`", heading) or [heading]
        included = re.search(rf"^The fields of .*?{_LINK}", body, re.MULTILINE)
        for name in names:
            found[name] |= dict(_ROW.findall(body.partition("\n## ")[0]))
            if included:
                includes[name] = included[1]
    for name, part in includes.items():
        found[name] = found[part] | found[name]
    return dict(found), includes


SHAPES, INCLUDES = parse(PAGE.read_text())
COMMANDS = {
    name
    for heading in re.findall(r"^### (`.+`)$", PAGE.read_text(), re.MULTILINE)
    for name in re.findall(r"`(.+?)`", heading)
}
"""The commands of the page; its other tables are parts of their output."""


class Checker:
    """Checks documents; `seen` contains the fields that occurred, as (command or part, field)."""

    def __init__(self):
        self.seen = set()

    def check(self, name, document):
        """Check that a document has the fields of a command or part, with the right types, and no
        others.
        """
        fields = SHAPES[name]
        required = {field for field, kind in fields.items() if not kind.endswith(", optional")}
        assert required <= set(document) <= set(fields), name
        for field, value in document.items():
            self.seen |= {(name, field), (INCLUDES.get(name), field)}
            self._check_value(f"{name}: {field}", value, fields[field].removesuffix(", optional"))

    def _check_value(self, where, value, kind):
        if kind.endswith(" or null"):
            if value is None:
                return
            kind = kind.removesuffix(" or null")
        if kind.startswith("list of "):
            assert isinstance(value, list), where
            for each in value:
                self._check_value(where, each, kind.removeprefix("list of "))
        elif link := re.fullmatch(_LINK, kind):
            self.check(link[1], value)
        elif kind == "time":
            assert _TIME.fullmatch(value), where
        else:
            assert isinstance(value, TYPES[kind]), (where, value)
            assert kind == "boolean" or not isinstance(value, bool), (where, value)
