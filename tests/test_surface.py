"""A commit that changes the public surface must also change the golden files; see `surface`."""

from difflib import unified_diff

import pytest
import surface

ACCEPT = "If every change is intended: python tests/surface.py --write, in the same commit."
OUTLIVING = f"Stored files, scripts or running jobs depend on this. {ACCEPT}"
NAMES = f"A renamed or removed Python name also gets a line in CHANGELOG.md. {ACCEPT}"


@pytest.mark.parametrize("kind", surface.KINDS, ids=lambda kind: kind.__name__)
def test_the_surface_equals_the_golden_files(kind):
    file = surface.GOLDEN / f"{kind.__name__}.txt"
    promised, found = file.read_text().splitlines(), surface.listed(kind).splitlines()
    changes = [*unified_diff(promised, found, "promised", "found", lineterm="", n=1)]
    advice = OUTLIVING if kind in surface.OUTLIVING else NAMES
    assert not changes, "\n".join([f"tests/golden/surface/{file.name}:", *changes, advice])
