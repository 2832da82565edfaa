"""A commit that changes the public surface must also change the golden files; see `surface`."""

import ast
import re
from difflib import unified_diff

import pytest
import surface

ACCEPT = "If every change is intended: python tests/surface.py --write, in the same commit."
OUTLIVING = f"Stored files, scripts or running jobs depend on this. {ACCEPT}"
NAMES = f"A renamed or removed Python name also gets a line in CHANGELOG.md. {ACCEPT}"


@pytest.fixture(scope="module", autouse=True)
def forget(without_collections):
    """The trees of all modules would make the garbage collections of all later tests slower."""
    yield
    for known in (surface.trees, surface.every_node, surface.constants, surface.error_codes):
        known.cache_clear()


@pytest.mark.parametrize("kind", surface.KINDS)
def test_the_surface_equals_the_golden_files(kind):
    file = surface.GOLDEN / f"{kind.__name__}.txt"
    promised, found = file.read_text().splitlines(), surface.listed(kind).splitlines()
    changes = [*unified_diff(promised, found, "promised", "found", lineterm="", n=1)]
    advice = OUTLIVING if kind in surface.OUTLIVING else NAMES
    assert not changes, "\n".join([f"tests/golden/surface/{file.name}:", *changes, advice])


PAGES = [
    page
    for folder in (".", ".github", "store", "connector", "examples")
    for page in sorted((surface.ROOT / folder).glob("*.md"))
]


@pytest.fixture(scope="module")
def public():
    return {module: {*surface.offered(module)} for module in surface.PUBLIC}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_import_only_public_names(page, public):
    imports = re.compile(r"^ *from (py\w*rocket[\w.]*) import (.+)$", re.MULTILINE)
    for module, names in imports.findall(page.read_text()):
        for name in names.strip("( )").split(", "):
            is_module = f"{module}.{name}" in public
            assert is_module or name in public.get(module, ()), f"{page.name}: {module}.{name}"


def messages():
    """Yield the strings of the product that are not docstrings, with their modules."""
    for module, tree in surface.trees().items():
        nodes = [*ast.walk(tree)]
        documentation = {node.value for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and node not in documentation:
                yield module, node.value


def names_of(parents):
    """Return the names of the functions and classes in the bodies of modules or classes."""
    found = (node for parent in parents for node in parent.body)
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_errors_name_only_public_functions_and_classes(public):
    defined = names_of(surface.trees().values())
    defined -= names_of(surface.nodes(ast.ClassDef))  # Methods are called on public objects.
    names = set().union(*public.values())
    for module, text in messages():
        named = {*re.findall(r"\b(?:[Uu]se|[Ww]ith|[Cc]all) `(\w+)(?:\(|`)", text)} & defined
        named |= {*re.findall(r"\bpyrocket\.([A-Z]\w+)", text)}
        assert named <= names, f"{module}: {text!r} names {sorted(named - names)}"


def test_each_code_of_an_error_or_a_finding_has_a_test_that_names_it():
    used = {
        code
        for code, kinds in surface.error_codes().items()
        if any(not kind.endswith(surface.DEFAULT) for kind in kinds)
    }
    tests = "\n".join(path.read_text() for path in (surface.ROOT / "tests").rglob("*.py"))
    named = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", tests))
    assert len(used) > 100
    assert used - named == set()
