"""Compares RocketMQ's allocation of queues with pyrocket's, on random queues and members.

`python -m interop.test_allocation FILE`, from `tests/`, writes cases and RocketMQ 5.5's answers to
a file like `tests/golden/allocation.json`.
"""

import json
import sys
import tempfile
from collections import Counter
from random import Random

from interop.maven import class_path
from interop.programs import decode, encode, run
from support.allocations import random_case

_EACH = 25
"""The number of cases per strategy in a file."""


def ask(classes, cases):
    """Return RocketMQ's answers: the allocated queues, or None for an exception."""
    lines = [",".join(map(encode, case.words())) for case in cases]
    return list(map(_answer, run(classes, "Allocation", lines)))


def _answer(line):
    return None if line == "E" else [decode(word) for word in line.split(",") if word]


def test_queues_are_allocated_as_rocketmq_does(java_version):
    random = Random(18)
    cases = [random_case(random) for _ in range(6000)]
    answers = ask(java_version.classes, cases)
    pairs = list(zip(cases, answers, strict=True))
    assert not [(case, answer) for case, answer in pairs if case.answer() != answer]
    allocated = Counter(case.strategy for case, answer in pairs if answer)
    assert len(allocated) == 6
    assert min(allocated.values()) > 200
    assert sum(answer is None for answer in answers) > 200


def chosen(cases, answers):
    """Return short cases, the same number for each strategy; a few of them fail or are empty."""
    found = {}
    for case, answer in zip(cases, answers, strict=True):
        known = found.setdefault(case.strategy, [])
        without = sum(not one["answer"] for one in known)
        short = len("".join(case.words())) < 350
        if short and len(known) < _EACH and (answer or without < _EACH // 5):
            known.append(case.to_json(answer))
    return [case for known in found.values() for case in known]


if __name__ == "__main__":
    random = Random(9)
    cases = [random_case(random) for _ in range(3000)]
    with tempfile.TemporaryDirectory() as folder:
        picked = chosen(cases, ask(class_path("5.5", folder), cases))
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(map(json.dumps, picked)) + "\n]\n")
