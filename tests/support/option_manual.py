"""Generates `connector/OPTIONS.md` from the options' declarations.

python tests/support/option_manual.py --write     updates the page
"""

import sys
from pathlib import Path

from pyspark_pyrocket.options import (
    batching,
    creation,
    delivery,
    endpoint,
    payload,
    policies,
    selection,
    span,
    topics,
)
from pyspark_pyrocket.options.option import SINK, TARGETS, rows_of
from pyspark_pyrocket.options.target import PATH
from pyspark_pyrocket.transport.interface import NEEDS, Capability
from pyspark_pyrocket.transport.namesrv import NamesrvTarget
from pyspark_pyrocket.transport.path import PathTarget

PAGE = Path(__file__).resolve().parents[2] / "connector" / "OPTIONS.md"
SECTIONS = {
    "Store": (PATH, *rows_of(endpoint.Endpoint)),
    "Topics": rows_of(topics.SubscribedTopics),
    "Start and end": rows_of(span.Span),
    "Lost messages": rows_of(policies.LossPolicy),
    "Micro-batches": rows_of(batching.Admission),
    "Tasks": rows_of(batching.Splitting),
    "Filters, keys and ids": rows_of(selection.Selection, selection.KeyLookup),
    "Columns and bodies": rows_of(payload.Payload, payload.EncodingOptions),
    "Views and checksums": rows_of(selection.View),
    "Groups, and reading only": rows_of(policies.Progress),
    "Creation": rows_of(creation.CreationOptions),
    "Delivery": rows_of(delivery.DeliveryOptions),
}
_INTRODUCTION = """\
# Options of `format("pyrocket")`

All options, in the order of a query's parts; [GUIDE.md](GUIDE.md) shows their use. The column
`queries` names the queries that have the option: batch reads, streaming reads, and sinks, which
are writes of both kinds.

{index}

Option names are case-insensitive. An unknown option, or one that does not apply to the kind of
query, is rejected with the most similar name. Options of Kafka's source (`kafka.*`,
`groupIdPrefix`, `fetchOffset.*`) and of Spark itself (`checkpointLocation` on a reader, `header`)
are rejected with an explanation. Options, columns, topics and offsets are checked on the driver
before any task runs.

The code generates this page: `python tests/support/option_manual.py --write`."""
_TARGETS = """\
## Targets

A query names its store by `path`, `endpoint` or `namesrv`. All options that this table lacks have a
meaning for each of them. An option without a meaning is rejected, or has no effect.

{table}"""
CAPABILITIES = {
    "path": PathTarget.capabilities,
    "endpoint": frozenset(Capability),
    "namesrv": NamesrvTarget.capabilities,
}
_BAR = r"\|"
_HEAD = "| option | default | queries | meaning |\n|---|---|---|---|"


def rendered():
    """Return the page generated from the code."""
    parts = [_INTRODUCTION.format(index=_index())]
    for title, options in SECTIONS.items():
        parts.append(f"## {title}\n\n{_HEAD}\n" + "\n".join(map(_row, options)))
    parts.append(_TARGETS.format(table=_targets()))
    return "\n\n".join(parts) + "\n"


def has_meaning(option, target):
    """Return whether an option has a meaning for the target that another option names."""
    queries = next(one.queries for one in SECTIONS["Store"] if one.name == target)
    capability = NEEDS.get(option.name)
    return (
        target in option.targets
        and (option.queries != (SINK,) or SINK in queries)
        and (capability is None or capability in CAPABILITIES[target])
    )


def _targets():
    rows = ["| option | " + " | ".join(f"`{name}`" for name in TARGETS) + " | needs |"]
    rows.append("|---" * (len(TARGETS) + 2) + "|")
    for option in (one for options in SECTIONS.values() for one in options):
        found = [has_meaning(option, target) for target in TARGETS]
        if not all(found):
            cells = ["yes" if has else "no" for has in found]
            need = NEEDS[option.name].value if option.name in NEEDS else ""
            rows.append(f"| `{option.name}` | {' | '.join(cells)} | {need} |")
    return "\n".join(rows)


def _index():
    rows = ["| section | options |", "|---|---|"]
    for title, options in SECTIONS.items():
        anchor = title.lower().replace(",", "").replace(" ", "-")
        names = ", ".join(f"`{option.name}`" for option in options)
        rows.append(f"| [{title}](#{anchor}) | {names} |")
    return "\n".join(rows)


def _row(option):
    cells = (f"`{option.name}`", option.default, ", ".join(option.queries), option.meaning)
    return f"| {' | '.join(cell.replace('|', _BAR) for cell in cells)} |"


if __name__ == "__main__" and "--write" in sys.argv:
    PAGE.write_text(rendered())
