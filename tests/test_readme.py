"""What the READMEs say is so: snippets print what is shown, commands exist, tables are the code's.

A snippet sees the names of those before it. Its output is the `text` block right behind it.
"""

import ast
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyrocket.tools.cli import find_commands
from pyspark_pyrocket.columns.messages import COLUMNS, KAFKA_DEFAULT, ROCKETMQ_DEFAULT
from pyspark_pyrocket.options.option import SINK
from pyspark_pyrocket.options.table import TABLE
from pyspark_pyrocket.sink.columns import _SENT

ROOT = Path(__file__).resolve().parent.parent
FACE = ROOT / "jars-free-README.md"
PAGES = [
    FACE,
    ROOT / "store" / "README.md",
    ROOT / "connector" / "README.md",
    ROOT / ".github" / "CONTRIBUTING.md",
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n(?:\n(?=```text\n))?", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"`((?:python3|pip|pyrocket|spark-submit|\.ci/run)(?: [^`]*)?)`")


@dataclass(frozen=True)
class Snippet:
    """Code, what the page says it prints, and the line it is on."""

    code: str
    shown: str | None
    line: int


def blocks(page):
    """Return (language, text, line, end) of each fenced block."""
    text = page.read_text()
    return [
        (found[1], found[2], text.count("\n", 0, found.start()) + 1, found.end())
        for found in BLOCK.finditer(text)
    ]


def snippets(page):
    text = page.read_text()
    for language, code, line, end in blocks(page):
        if language == "python":
            follows = BLOCK.match(text, end)
            shown = follows[2] if follows and follows[1] == "text" else None
            yield Snippet(code, shown, line)


def run(snippet, page, names, places):
    """Run a snippet with its paths replaced; return what it printed."""
    code = snippet.code
    for shown, real in places.items():
        code = code.replace(shown, str(real))
    # Tracebacks show the page's own lines.
    compiled = compile("\n" * snippet.line + code, str(page), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compiled, names)
    return printed.getvalue()


def normalised(text):
    return [line.rstrip() for line in text.strip().splitlines()]


def assert_snippets_print_what_is_shown(page, names, places):
    for snippet in snippets(page):
        printed = run(snippet, page, names, places)
        if snippet.shown is not None:
            assert normalised(printed) == normalised(snippet.shown), f"{page}:{snippet.line}"


def test_snippets_of_the_face(spark, tmp_path):
    assert len([snippet for snippet in snippets(FACE) if snippet.shown]) >= 5
    assert_snippets_print_what_is_shown(FACE, {}, {"/tmp/pyrocket": tmp_path})


def test_snippets_of_the_connector(spark, tmp_path):
    names = {"spark": spark, "df": spark.createDataFrame([("1",)], "id STRING")}
    page = ROOT / "connector" / "README.md"
    assert_snippets_print_what_is_shown(page, names, {"/data/store": tmp_path / "store"})


def test_snippets_of_the_store(tmp_path):
    assert_snippets_print_what_is_shown(PAGES[1], {}, {"/tmp/pyrocket": tmp_path})


@pytest.mark.parametrize(("shown", "agrees"), [("2\n", True), ("3\n", False)])
def test_a_wrong_output_is_noticed(tmp_path, shown, agrees):
    page = tmp_path / "page.md"
    code = "```python\nnumber = 1\n```\n\nand\n\n```python\nprint(number + 1)\n```\n\n"
    page.write_text(f"# Page\n\n{code}```text\n{shown}```\n")
    expected = contextlib.nullcontext() if agrees else pytest.raises(AssertionError, match=":9")
    with expected:
        assert_snippets_print_what_is_shown(page, {}, {})


@pytest.mark.parametrize(
    "command",
    [
        "python3 exampels",
        "python3 examples fligths",
        "pyrocket docter",
        "pip install '.[sparc]'",
        ".ci/rum",
        "spark-submit examples/export_parquet.py --topik t",
    ],
)
def test_a_wrong_command_is_noticed(command):
    with pytest.raises(AssertionError):
        assert_command_exists(command)


def commands(page):
    lines = [line for kind, text, *_ in blocks(page) if kind == "bash" for line in text.split("\n")]
    return [line for line in lines if line] + COMMAND.findall(page.read_text())


def script_exists(words):
    target = ROOT / words[0]
    assert target.is_file() or (target / "__main__.py").is_file(), words
    named = words[0] == "examples" and words[1:] and not words[1].startswith("-")
    if named and words[1] != "NAME":
        assert (target / f"{words[1]}.py").is_file(), words


def extras_exist(words):
    for extra in re.findall(r"[a-z]+", "".join(re.findall(r"\[(.*?)\]", " ".join(words)))):
        assert f'"{extra}":' in (ROOT / "setup.py").read_text(), extra


def submitted_job_has_its_options(words):
    script, *options = words
    done = subprocess.run(
        [sys.executable, ROOT / script, "--help"], capture_output=True, text=True, check=True
    )
    for option in options:
        assert not option.startswith("--") or option in done.stdout, option


def assert_command_exists(command):
    program, *words = shlex.split(command)
    if program == "python3" and words:
        script_exists(words)
    elif program == "pip":
        extras_exist(words)
    elif program == "pyrocket" and words:
        assert words[0] in find_commands(), command
    elif program == "spark-submit" and words:
        submitted_job_has_its_options(words)
    elif "/" in program and not program.startswith(".venv/"):
        assert os.access(ROOT / program, os.X_OK), command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page):
    for command in commands(page):
        assert_command_exists(command)


def test_the_commands_of_the_face_are_found():
    assert {"python3 examples", "python3 tests", "pip install '.[spark]'"} <= {*commands(FACE)}
    assert shutil.which("du")
    assert shutil.which("cp")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def section(title):
    """Return the lines of one section of the face."""
    return FACE.read_text().split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0].splitlines()


def rows(title):
    """Return the table rows of one section, without the header."""
    table = [line for line in section(title) if line.startswith("|")]
    return table[2:]


def source_options():
    for option in TABLE:
        queries = ", ".join(query for query in option.queries if query != SINK)
        if queries:
            yield f"| `{option.name}` | {option.default} | {queries} | {option.meaning} |"


def sink_options():
    for option in TABLE:
        if SINK in option.queries:
            yield f"| `{option.name}` | {option.default} | {option.meaning} |"


def test_the_option_tables_are_the_codes():
    assert rows("Options of a source") == list(source_options())
    assert rows("Options of a sink") == list(sink_options())


def ddl(names):
    """Return columns as a schema is written."""
    return ", ".join(f"{name} {COLUMNS[name][0].spark_type.simpleString()}" for name in names)


def read_columns():
    kafka = (*KAFKA_DEFAULT, "headers")
    more = [name for name in COLUMNS if name not in (*ROCKETMQ_DEFAULT, *kafka)]
    for title, names in {"default": ROCKETMQ_DEFAULT, "on request": more, "Kafka's": kafka}.items():
        yield f"| {title} | `{ddl(names)}` |"


def test_the_read_columns_are_the_codes():
    assert {*read_columns()} <= {*section("Columns")}


def test_the_write_columns_are_the_codes():
    table = [line.split("|") for line in section("Columns") if line.startswith("| `")]
    columns = {name: line[2] for line in table for name in re.findall(r"`(\w+)`", line[1])}
    assert sorted(columns) == sorted(_SENT)
    for name, said in columns.items():
        for kind in _SENT[name][1]:
            assert kind.simpleString() in said, (name, kind)


def strings_of_the_code():
    sources = [*(ROOT / "store").rglob("*.py"), *(ROOT / "connector").rglob("*.py")]
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_errors_of_the_face_exist():
    known = {*strings_of_the_code()}
    named = [code for line in rows("Errors") for code in re.findall(r"`([A-Z_0-9]+)`", line)]
    assert named
    assert not [code for code in named if code not in known]


def test_the_face_holds_no_placeholder():
    assert not re.findall(r"\b[A-Z]+_(?:OPTIONS|COLUMNS|EXAMPLES|TESTS)\b", FACE.read_text())
