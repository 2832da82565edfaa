"""Makes small seeded changes to the product's code, and reports those that no test detects.

    pip install cosmic-ray coverage
    python tests/mutants.py map FOLDER      # once: records which tests execute which lines
    python tests/mutants.py run FOLDER [--count 300] [--seed 1] [--workers 2]

cosmic-ray's operators make the changes, one at a time, in a copy of the checkout; each worker has
its own copy. For each change, the tests that execute the changed lines run, for at most SECONDS:
first those in the folder of the changed module's tests, then the fastest of all others. Changed
lines that run at import, such as constants, are tested by the tests that execute their users. Lines
that only Spark's processes execute are tested by the connector's tests of the same package. An
undetected change is printed as a diff: it needs a test, or a reason why it changes nothing.
FOLDER keeps the map and the results, so that a later run can continue.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, zip_longest
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("store/pyrocket", "connector/pyspark_pyrocket")
OPERATORS = [
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr"),
    *("ReplaceOrWithAnd", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak"),
    *("ExceptionReplacer", "NumberReplacer", "ZeroIterationForLoop"),
    *(f"ReplaceUnaryOperator_Delete_{sign}" for sign in ("Not", "USub")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("IsNot_Is", "Lt_LtE", "LtE_Lt")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Gt_GtE", "GtE_Gt", "Lt_Gt", "Gt_Lt")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_FloorDiv")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("FloorDiv_Mul", "Mod_FloorDiv", "Div_Mul")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("RShift_LShift", "LShift_RShift")),
    *("ReplaceBinaryOperator_BitAnd_BitOr",),
]
SECONDS, TESTS, TIMEOUT_S = 60, 600, 240
"""Limits for one change: the seconds that its tests take without the change, the number of tests,
and the timeout."""


def record(folder: Path) -> None:
    """Run the default tests once, and record the product's lines that each test executes."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "MUTANTS": str(folder)}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "support.line_recorder"]
    subprocess.run(command, cwd=ROOT, env=environment, check=False)


def recorded(folder: Path) -> tuple[dict, dict]:
    """Return {file: {line: tests}} and {test: seconds}."""
    from coverage import CoverageData

    lines: dict = {}
    for path in folder.glob("lines.*"):
        data = CoverageData(str(path))
        data.read()
        for file in data.measured_files():
            known = lines.setdefault(str(Path(file).resolve()), {})
            for line, tests in data.contexts_by_lineno(file).items():
                known.setdefault(line, set()).update(filter(None, tests))
    seconds: dict = {}
    for path in folder.glob("seconds.*.json"):
        seconds |= json.loads(path.read_text())
    return lines, seconds


def product() -> list[str]:
    found = sorted(path for top in PRODUCT for path in (ROOT / top).rglob("*.py"))
    return [str(path.relative_to(ROOT)) for path in found]


def changes(seed: int, count: int) -> list[tuple[str, str, int, int, int]]:
    """Return `count` changes: file, operator, the operator's occurrence in the file, first and last
    line.
    """
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    found = []
    for path in product():
        tree = get_ast((ROOT / path).read_text())
        for name in OPERATORS:
            operator = get_operator(f"core/{name}")()
            spots = [spot for node in ast_nodes(tree) for spot in operator.mutation_positions(node)]
            for occurrence, ((first, _), (last, _)) in enumerate(spots):
                found.append((path, name, occurrence, first, last))
    return random.Random(seed).sample(found, count)


def users_of(file: str, first: int, last: int) -> list[tuple[str, int]]:
    """Return the lines to test: the changed lines in a function's body, the body of a changed
    signature, or the uses of an assigned name.
    """
    nodes = [*ast.walk(ast.parse((ROOT / file).read_text()))]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if any(node.body[0].lineno <= first <= node.end_lineno for node in functions):
        return [(file, at) for at in range(first, last + 1)]
    for node in functions:
        if min(one.lineno for one in (node, *node.decorator_list)) <= first <= node.end_lineno:
            return [(file, at) for at in range(node.body[0].lineno, node.end_lineno + 1)]
    statements = (node for node in nodes if isinstance(node, ast.Assign | ast.AnnAssign))
    texts = [ast.unparse(one) for one in statements if one.lineno <= first <= one.end_lineno]
    names = [name for text in texts for name in re.findall(r"\w+", re.split("[:=]", text)[0])]
    word = re.compile(rf"\b({'|'.join(names)})\b" if names else "(?!)")
    users = [file] if all(name.startswith("_") for name in names) else product()
    found = ((path, enumerate((ROOT / path).read_text().split("\n"), 1)) for path in users)
    return [(path, at) for path, numbered in found for at, text in numbered if word.search(text)]


def in_turn(groups: Iterable[Iterable[str]]) -> list[str]:
    """Return each test once: the first test of each group, then the second test of each, and so
    on.
    """
    return list(dict.fromkeys(filter(None, chain.from_iterable(zip_longest(*groups)))))


def tests_of(change: tuple, lines: dict, seconds: dict) -> list[str]:
    """Return the tests of the changed lines, or of their file: first those in the folder of the
    file's tests, then the fastest test for each line and test file.
    """
    file, _, _, first, last = change
    known = {path: lines.get(str(ROOT / path), {}) for path in product()}
    lists = [known[path].get(at, ()) for path, at in users_of(file, first, last)]
    lists = lists if any(lists) else [set().union(*known[file].values())]
    groups: list[dict] = [{} for _ in lists]
    for group, tests in zip(groups, lists, strict=True):
        for test in sorted(tests, key=lambda test: (seconds.get(test, 1), test)):
            group.setdefault(test.split("::")[0], []).append(test)
    folder = folder_of_tests(file)
    own = {test for tests in lists for test in tests if test.startswith(f"{folder}/")}
    nearest = sorted(own, key=lambda test: (seconds.get(test, 1), test))
    chosen, spent = [], 0.0
    for test in dict.fromkeys([*nearest, *in_turn(in_turn(group.values()) for group in groups)]):
        if not chosen or (spent + seconds.get(test, 1) <= SECONDS and len(chosen) < TESTS):
            chosen.append(test)
            spent += seconds.get(test, 1)
    # Tests run in the order of the suite, because tests of one file share fixtures.
    return sorted(chosen) or [str(folder)]


def folder_of_tests(file: str) -> Path:
    """Return the folder of a module's tests, or the nearest one above it."""
    top, _, *rooms = Path(file).parent.parts
    folder = Path("tests", top, *rooms)
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    return folder


def outcome(change: tuple, tests: list[str], copy: Path) -> tuple[str, str]:
    """Return killed, timeout or survived, and the diff."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    file, name, occurrence, *_ = change
    before = (ROOT / file).read_text()
    after = mutate_code(before, get_operator(f"core/{name}")(), occurrence)
    (copy / file).write_text(after)
    try:
        compare = ["diff", "-U1", ROOT / file, copy / file]
        diff = subprocess.run(compare, capture_output=True, text=True).stdout
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        done = subprocess.run(command, cwd=copy, capture_output=True, timeout=TIMEOUT_S)
        return ("killed" if done.returncode else "survived"), diff
    except subprocess.TimeoutExpired:
        return "timeout", diff
    finally:
        (copy / file).write_text(before)


def say(*lines: str) -> None:
    sys.stdout.write("\n".join([*lines, ""]))
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("step", choices=["map", "run"])
    parser.add_argument("folder", type=Path)
    for name, default in (("--count", 300), ("--seed", 1), ("--workers", 2)):
        parser.add_argument(name, type=int, default=default)
    given = parser.parse_args()
    folder = given.folder.resolve()
    if given.step == "map":
        record(folder)
        return
    lines, seconds = recorded(folder)
    results = folder / f"results.{given.seed}.json"
    done = json.loads(results.read_text()) if results.exists() else {}
    copies, ignored = SimpleQueue(), shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info")
    for number in range(given.workers):
        copy = folder / f"copy{number}"
        shutil.rmtree(copy, ignore_errors=True)
        copies.put(shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True))

    def test(change: tuple) -> None:
        key = " ".join(map(str, change))
        if key not in done:
            copy = copies.get()
            done[key] = outcome(change, tests_of(change, lines, seconds), copy)
            copies.put(copy)
            results.write_text(json.dumps(done, indent=1))
            say(f"{done[key][0]} {key}")

    with ThreadPoolExecutor(given.workers) as pool:
        list(pool.map(test, changes(given.seed, given.count)))
    survived = [diff for verdict, diff in done.values() if verdict == "survived"]
    say(*survived, f"{len(done) - len(survived)} of {len(done)} detected")


if __name__ == "__main__":
    main()
