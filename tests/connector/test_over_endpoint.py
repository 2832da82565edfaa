"""All tests named in `support.over_endpoint` exist; a renamed test would not be selected."""

import re
from pathlib import Path

from support.over_endpoint import MODULES, QUICK

HERE = Path(__file__).parent


def named_in(module):
    (path,) = HERE.rglob(f"{module}.py")
    return {*re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)}


def test_every_named_test_exists():
    known = {module: named_in(module) for module in MODULES}
    assert {name for module, names in MODULES.items() for name in names - known[module]} == set()
    assert QUICK - set().union(*known.values()) == set()
