"""The pages are correct: snippets print the shown output, and commands, links and codes exist. A
snippet uses the names that earlier snippets define. Its output is the `text` block directly after
it.
"""

import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from pyrocket.tools.cli import find_commands
from pyspark_pyrocket.options.table import TABLE
from support.rocketmq_cluster import rocketmq
from support.transports import namesrv_target

ROOT = Path(__file__).resolve().parent.parent
FACE = ROOT / "jars-free-README.md"
CLUSTER = ROOT / "connector" / "CLUSTER.md"
PAGES = [
    FACE,
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / ".github").glob("*.md")),
    *(page for folder in ("store", "connector", "tests") for page in (ROOT / folder).rglob("*.md")),
]
SPARK_PAGES = ["connector/GUIDE.md", "connector/KAFKA.md"]
STORE_PAGES = ["store/README.md", "store/OPERATIONS.md", "store/CLIENTS.md"]
LINES_MAX = {FACE.name: 200, "store/README.md": 150, "connector/GUIDE.md": 400}
"""The pages for a first reading are short."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n(?:\n(?=```text\n))?", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"`((?:python3|pip|pyrocket|spark-submit|\.ci/run)(?: [^`]*)?)`")


@dataclass(frozen=True)
class Snippet:
    """A code block, its output on the page, and its line number."""

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
    """Run a snippet with its paths replaced; return its output."""
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


def test_the_snippets_of_the_front_page_print_the_shown_output(spark, tmp_path):
    assert len([snippet for snippet in snippets(FACE) if snippet.shown]) == 3
    assert_snippets_print_what_is_shown(FACE, {}, {"/tmp/pyrocket": tmp_path})


@pytest.mark.parametrize("name", SPARK_PAGES)
def test_the_snippets_of_the_connectors_pages_print_the_shown_output(spark, tmp_path, name):
    names = {"spark": spark, "df": spark.createDataFrame([("1",)], "id STRING")}
    page = ROOT / name
    assert [*snippets(page)]
    assert_snippets_print_what_is_shown(page, names, {"/data/store": tmp_path / "store"})


def test_the_snippets_of_the_page_about_clusters_write_and_read(spark, tmp_path):
    with rocketmq(tmp_path) as made:
        made.brokers[0].store.topics.create("flights")
        names = {"spark": spark, "df": spark.createDataFrame([("1",), ("2",)], "body STRING")}
        (address,) = made.addresses
        places = {"namesrv-1:9876;namesrv-2:9876": address, "namesrv-1:9876": address}
        assert_snippets_print_what_is_shown(CLUSTER, names, places)
        once = names["flights"].writeStream.format("memory").queryName("flights")
        once.trigger(availableNow=True).start().awaitTermination()
        assert spark.table("flights").count() == 2
        namesrv_target(made).close_source()


@pytest.mark.parametrize("name", STORE_PAGES)
def test_the_snippets_of_the_stores_pages_print_the_shown_output(tmp_path, name):
    page = ROOT / name
    assert [*snippets(page)]
    assert_snippets_print_what_is_shown(page, {}, {"/tmp/pyrocket": tmp_path})


def test_every_page_with_snippets_is_executed():
    # The broker's snippet is executed by tests/store/server/messaging/test_official_python.py.
    executed = {*SPARK_PAGES, *STORE_PAGES, "store/BROKER.md", "connector/CLUSTER.md", FACE.name}
    assert {str(page.relative_to(ROOT)) for page in PAGES if any(snippets(page))} <= executed


@pytest.mark.parametrize(("shown", "agrees"), [("2\n", True), ("3\n", False)])
def test_a_wrong_output_is_detected(tmp_path, shown, agrees):
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
def test_a_wrong_command_is_detected(command):
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
    script = next((word for word in words if word.startswith("examples/")), None)
    if script is None:
        return  # A user's own job: the options are Spark's.
    for option in words[words.index(script) + 1 :]:
        assert not option.startswith("--") or option in help_of(script), option


@cache
def help_of(script):
    command = [sys.executable, ROOT / script, "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


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
def test_the_commands_on_pages_exist(page):
    for command in commands(page):
        assert_command_exists(command)


def test_the_commands_of_the_front_page_are_found():
    assert {"python3 examples", "python3 tests", "pip install '.[spark]'"} <= {*commands(FACE)}


def anchors(page):
    """Return the fragments of a page's headings, as forges generate them."""
    outside = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", outside, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        file, _, fragment = target.partition("#")
        linked = page.parent / file if file else page
        assert linked.exists(), target
        assert not fragment or fragment in anchors(linked), target


def test_the_forge_shows_the_front_page():
    assert os.readlink(ROOT / "README.md") == FACE.name


@pytest.mark.parametrize(("name", "lines_max"), LINES_MAX.items())
def test_a_page_for_a_first_reading_is_short(name, lines_max):
    assert len((ROOT / name).read_text().splitlines()) <= lines_max


def tables(page):
    """Return the tables of a page, as lists of lines; the first line has the titles."""
    for block in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE):
        yield block.splitlines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_rows_of_a_table_have_as_many_cells_as_its_head(page):
    for table in tables(page):
        cells = [len(re.findall(r"(?<!\\)\|", row)) for row in table]
        assert len({*cells}) == 1, table[0]


def test_the_options_of_the_front_page_exist():
    (table,) = [table for table in tables(FACE) if table[0].startswith("| option")]
    named = {name for row in table for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert len(table) == 2 + 10
    assert named <= {option.name for option in TABLE}


def test_each_option_is_described_once():
    text = "\n".join(page.read_text() for page in PAGES)
    for option in TABLE:
        assert text.count(option.meaning.replace("|", r"\|")) == 1, option.name


@cache
def strings_of_the_code():
    return {*_strings()}


def _strings():
    sources = [*(ROOT / "store").rglob("*.py"), *(ROOT / "connector").rglob("*.py")]
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_log_lines_on_pages_are_logged():
    shown = [
        line.partition(" INFO pyrocket: ")[2]
        for page in PAGES
        for line in page.read_text().splitlines()
        if " INFO pyrocket: " in line
    ]
    assert shown
    formats = [each for each in strings_of_the_code() if len(re.sub("%[sd]", "", each)) > 20]
    for line in shown:
        near = [each for each in formats if line.startswith(re.split("%[sd]", each)[0])]
        assert any(re.fullmatch(re.sub("%[sd]", ".*", re.escape(e)), line) for e in near), line


def error_codes(page):
    """Return the codes that a page explains: first cells of tables of codes, and headings."""
    for table in tables(page):
        if table[0].startswith("| code"):
            own = [row.split("|")[1] for row in table if "(Spark)" not in row]
            yield from re.findall(r"`([A-Z_0-9]+)`", " ".join(own))
    for title in re.findall(r"^### ([A-Z_, ]+)$", page.read_text(), re.MULTILINE):
        yield from title.split(", ")


def test_explained_error_codes_exist():
    named = {code for page in PAGES for code in error_codes(page)}
    assert {"OPTION_UNKNOWN", "LOG_DAMAGED", "DISK_FULL", "STORE_NOT_SHARED"} <= named
    assert not named - strings_of_the_code()


def test_the_page_of_errors_names_every_code_that_a_page_explains():
    named = {*re.findall(r"`([A-Z_0-9]+)`", (ROOT / "connector" / "ERRORS.md").read_text())}
    assert {code for page in PAGES for code in error_codes(page)} <= named
