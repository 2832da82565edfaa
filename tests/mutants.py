"""Makes small seeded changes to the product's code, and reports those that no test detects.

    pip install cosmic-ray coverage
    python tests/mutants.py map FOLDER                     # once: which tests run which lines
    python tests/mutants.py run FOLDER [--count 300] [--seed 1] [--workers 2]

cosmic-ray's operators make the changes, one at a time, in a copy of the checkout for each worker.
For each change, the tests that execute the changed lines run, fastest first, for at most SECONDS;
lines that only Spark's processes execute are tested by the connector's tests of the same room. An
undetected change is printed as a diff: it needs a test, or a reason why it changes nothing. FOLDER
keeps the map and the results, so that a later run can continue.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("store/pyrocket", "connector/pyspark_pyrocket")
OPERATORS = [
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr"),
    *("ReplaceOrWithAnd", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak"),
    *("ExceptionReplacer", "NumberReplacer", "ZeroIterationForLoop"),
    *("ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_Delete_USub"),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("IsNot_Is", "Lt_LtE", "LtE_Lt")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Gt_GtE", "GtE_Gt", "Lt_Gt", "Gt_Lt")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_FloorDiv")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("FloorDiv_Mul", "Mod_FloorDiv")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("RShift_LShift", "LShift_RShift")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("BitAnd_BitOr", "Div_Mul")),
]
SECONDS, TESTS, TIMEOUT_S = 40, 150, 240
"""Limits for one change: seconds of its tests without it, number of tests; then its timeout."""
RECORDER = """
import json, os, time, warnings
import coverage, pytest
worker, folder = os.environ.get("PYTEST_XDIST_WORKER", "main"), os.environ["MUTANTS"]
recorder = coverage.Coverage(
    data_file=f"{folder}/lines.{worker}", source=["pyrocket", "pyspark_pyrocket"], config_file=False
)
recorder.start()
seconds = {}
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    recorder.switch_context(item.nodeid)
    started = time.monotonic()
    yield
    seconds[item.nodeid] = time.monotonic() - started
def pytest_sessionfinish():
    with open(f"{folder}/seconds.{worker}.json", "w") as file:
        json.dump(seconds, file)
    with warnings.catch_warnings(action="ignore"):
        recorder.stop()
        recorder.save()
"""


def record(folder: Path) -> None:
    """Run the default tests once, and record the lines of the product that each of them
    executes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mutants_recorder.py").write_text(RECORDER)
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "MUTANTS": str(folder)}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "mutants_recorder"]
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


def changes(seed: int, count: int) -> list[tuple[str, str, int, int, int]]:
    """Return `count` changes: file, operator, its occurrence in the file, first and last line."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    found = []
    for path in sorted(path for top in PRODUCT for path in (ROOT / top).rglob("*.py")):
        tree = get_ast(path.read_text())
        for name in OPERATORS:
            operator = get_operator(f"core/{name}")()
            spots = [spot for node in ast_nodes(tree) for spot in operator.mutation_positions(node)]
            for occurrence, ((first, _), (last, _)) in enumerate(spots):
                found.append((str(path.relative_to(ROOT)), name, occurrence, first, last))
    return random.Random(seed).sample(found, count)


def tests_of(change: tuple, lines: dict, seconds: dict) -> list[str]:
    """Return the tests that execute a change's lines, or any line of its file, fastest first."""
    file, _, _, first, last = change
    known = lines.get(str(ROOT / file), {})
    chosen = set().union(*(known.get(line, ()) for line in range(first, last + 1)))
    chosen = chosen or set().union(*known.values())
    ordered, spent = [], 0.0
    for test in sorted(chosen, key=lambda test: seconds.get(test, 1)):
        spent += seconds.get(test, 1)
        if ordered and (spent > SECONDS or len(ordered) == TESTS):
            break
        ordered.append(test)
    return ordered or [f"tests/{'connector' if file.startswith('connector') else 'store'}"]


def outcome(change: tuple, tests: list[str], copy: Path) -> tuple[str, str]:
    """Return killed, timeout or survived, and the diff."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    file, name, occurrence, *_ = change
    before = (ROOT / file).read_text()
    after = mutate_code(before, get_operator(f"core/{name}")(), occurrence)
    (copy / file).write_text(after)
    try:
        diff = subprocess.run(
            ["diff", "-U1", ROOT / file, copy / file], capture_output=True, text=True
        ).stdout
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
    copies: SimpleQueue = SimpleQueue()
    for number in range(given.workers):
        copy = folder / f"copy{number}"
        ignored = shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info")
        shutil.copytree(ROOT, copy, dirs_exist_ok=True, ignore=ignored, symlinks=True)
        copies.put(copy)

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
