"""Compares RocketMQ's evaluation of SQL with pyrocket's, on random expressions.

`python -m interop.test_sql FILE`, from `tests/`, writes cases and RocketMQ 5.5's answers to a file
like `tests/golden/sql92.json`.
"""

import json
import sys
import tempfile

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from interop.maven import class_path
from interop.programs import encode, run
from pyrocket.errors import InvalidInputError
from pyrocket.filters.sql_message import verdict
from pyrocket.filters.sql_parser import parse_sql
from support.sqls import EXPRESSIONS, PROPERTIES

NEW_IN_5 = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_EACH = 100
"""The number of cases per answer in a file."""


def random_cases(count):
    """Return pairs of an expression and properties that one run of hypothesis generates."""
    cases = []

    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(EXPRESSIONS, st.lists(PROPERTIES, min_size=3, max_size=3))
    def collect(sql, rows):
        cases.extend((sql, row) for row in rows)

    collect()
    return cases


def ask(classes, cases):
    """Return RocketMQ's answers: T, F, N (null), E (an exception), R (rejected)."""
    lines = [[sql, *(text for pair in row.items() for text in pair)] for sql, row in cases]
    return run(classes, "Sql", [",".join(map(encode, line)) for line in lines])


def our_answer(sql, row):
    try:
        return verdict(parse_sql(sql), row)
    except InvalidInputError:
        return "R"


def test_sql_is_evaluated_as_rocketmq_does(java_version):
    cases = random_cases(5000)
    if not java_version.is_5:
        cases = [case for case in cases if not any(word in case[0].upper() for word in NEW_IN_5)]
    answers = ask(java_version.classes, cases)
    assert len(answers) == len(cases) > 5000
    different = [
        (sql, row, answer, our_answer(sql, row))
        for (sql, row), answer in zip(cases, answers, strict=True)
        if our_answer(sql, row) != answer
    ]
    assert not different
    assert set(answers) == set("TFNER")


def chosen(cases, answers):
    """Return the same number of cases for each answer; all are short and different."""
    found = {}
    for (sql, row), answer in zip(cases, answers, strict=True):
        named = {name: value for name, value in row.items() if name in sql}
        known = found.setdefault(answer, {})
        if len(sql) < 90 and len(known) < _EACH and (sql, repr(named)) not in known:
            known[sql, repr(named)] = [sql, named, answer]
    return [case for known in found.values() for case in known.values()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        cases = random_cases(6000)
        picked = chosen(cases, ask(class_path("5.5", folder), cases))
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(map(json.dumps, picked)) + "\n]\n")
