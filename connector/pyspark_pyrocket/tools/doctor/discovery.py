"""Checks that Spark finds `format("pyrocket")`.

Spark imports every top-level module named `pyspark_*` at its first look-up. If one of them raises,
or has a `DefaultSource` that is not a class, Spark ignores all of them, logs a warning, and then
reports this format as not found.
"""

import json
import subprocess
from dataclasses import dataclass
from importlib.resources import files

from pyspark_pyrocket.tools.doctor.checks import ANSWER_TIMEOUT_S
from pyspark_pyrocket.tools.doctor.report import Check, fail, ok, warn

OURS = "pyspark_pyrocket"
FORMAT = "pyrocket"

_REGISTER = (
    "Or call spark.dataSource.register(pyspark_pyrocket.DefaultSource) in each session, "
    "which works without discovery."
)
_INSTALL = (
    "Call pyspark_pyrocket.configure() before the session, so that the workers use the driver's "
    "Python. Or install pyrocket for the workers' Python: pip install '.[spark]' in its "
    "checkout, or put store and connector of the checkout on PYTHONPATH before Spark starts."
)


@dataclass(frozen=True)
class Source:
    """The outcome of importing one `pyspark_*` module as Spark does.

    outcome: "source", "none" (no DefaultSource), "not a class", "not a source" or "raised".
    detail: the name of the format for a source, otherwise the reason.
    """

    module: str
    outcome: str
    detail: str

    @property
    def blocks(self) -> bool:
        """Whether the module hides every Python data source, including this one."""
        return self.outcome in ("raised", "not a class")


def check_discovery(python: str) -> list[Check]:
    """Import the modules that Spark would import, each in a new process."""
    names = _probe(python)
    if not isinstance(names, list):
        return [fail("discovery", f"{python} cannot look for modules: {names}", _INSTALL)]
    sources = [import_source(python, name) for name in names]
    return [*filter(None, map(_judge, sources)), _judge_ours(sources)]


def import_source(python: str, module: str) -> Source:
    """Return the outcome of importing the module in a new process."""
    answer = _probe(python, module)
    if isinstance(answer, dict):
        return Source(module, str(answer["outcome"]), str(answer["detail"]))
    return Source(module, "raised", str(answer))


def _judge(source: Source) -> Check | None:
    name = f"discovery: {source.module}"
    if source.blocks:
        remedy = f"Fix or uninstall {source.module}. {_REGISTER}"
        finding = f"hides every Python data source from Spark: {source.detail}"
        return fail(name, finding, remedy)
    if source.outcome == "not a source":
        return warn(name, source.detail, f"Spark ignores only {source.module}.")
    if source.detail == FORMAT and source.module != OURS:
        return warn(name, f"also offers the format {FORMAT!r}", "Spark uses the last one by name.")
    return None


def _judge_ours(sources: list[Source]) -> Check:
    name = f'discovery: format("{FORMAT}")'
    blocking = [source.module for source in sources if source.blocks]
    if blocking:
        return fail(name, f"hidden by {', '.join(blocking)}", _REGISTER)
    if Source(OURS, "source", FORMAT) in sources:
        return ok(name, f"found; modules named pyspark_*: {len(sources)}")
    return fail(name, "not found by the workers' Python", _INSTALL)


def _probe(python: str, *arguments: str) -> object:
    """Return the probe's JSON output, or the last line of its error."""
    text = files("pyspark_pyrocket.tools.doctor").joinpath("probe.py").read_text()
    try:
        answer = subprocess.run(
            [python, "-c", text, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_TIMEOUT_S,
        )
        return json.loads(answer.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    except (IndexError, ValueError):
        return (answer.stderr.strip().splitlines() or ["it ended without output"])[-1]
