"""The table of Java's names in `store/CLIENTS.md` has names that exist."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pyrocket
import pyrocket.client
from pyrocket.client import ConsumerConfig, ProducerConfig

PAGE = Path(__file__).resolve().parents[1] / "store" / "CLIENTS.md"
_CONFIGS = {"Producer": ProducerConfig, "PushConsumer": ConsumerConfig}


def rows():
    table = PAGE.read_text().partition("| Java | Python |\n|---|---|\n")[2].partition("\n\n")[0]
    return [line.strip("| ").split(" | ")[1] for line in table.splitlines()]


def names_of(owner):
    """Return the methods and arguments of a class of `pyrocket.client`."""
    found = getattr(pyrocket.client, owner)
    settings = {one.name for one in fields(_CONFIGS[owner])} if owner in _CONFIGS else set()
    return {*dir(found), *inspect.signature(found).parameters, *settings}


def test_the_names_in_the_table_exist():
    seen = 0
    for cell in rows():
        for owner, members in re.findall(r"`(\w+)`: ((?:`\w+`(?:, )?)+)", cell):
            assert {*re.findall(r"`(\w+)`", members)} <= names_of(owner), cell
            seen += 1
        rest = re.sub(r"`(\w+)`: (?:`\w+`(?:, )?)+", "", cell)
        for name in re.findall(r"`(\w+)`", rest.partition(" of `pyrocket")[0]):
            known = hasattr(pyrocket.client, name) or name in ("close", "with", "code")
            assert known or name in {one.name for one in fields(pyrocket.Message)}, cell
            seen += 1
    assert seen > 20
