"""The snippets of the pages pass mypy against the types of the packages."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SNIPPET = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
PAGES = [
    *("jars-free-README.md", "connector/GUIDE.md", "connector/KAFKA.md"),
    *(f"store/{name}.md" for name in ("BROKER", "CLIENTS", "OPERATIONS", "README")),
]
GIVEN = """\
from pyspark.sql import DataFrame, SparkSession

spark: SparkSession
df: DataFrame
"""
"""What the connector's pages leave out."""

MISTAKES = {
    "thread_maxx=3": 'Unexpected keyword argument "thread_maxx"',
    "thread_max='3'": "incompatible type",
    "consume_from='middle'": "incompatible type",
}


def mypy(folder):
    settings = ["--config-file=", "--check-untyped-defs", "--ignore-missing-imports"]
    packages = ["--namespace-packages", "--explicit-package-bases", "--follow-imports=silent"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            *settings,
            *packages,
            f"--cache-dir={ROOT}/.mypy_cache/pages",
        ]
        + [str(path) for path in sorted(folder.glob("*.py"))],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"MYPYPATH": f"{ROOT}/store:{ROOT}/connector", "PATH": "/usr/bin:/bin"},
    )
    return done.stdout


@pytest.mark.slow
def test_the_snippets_of_the_pages_are_typed_and_mistyped_settings_are_found(tmp_path):
    for page in PAGES:
        code = "\n".join(SNIPPET.findall((ROOT / page).read_text()))
        name = page.replace("/", "_").replace("-", "_").removesuffix(".md")
        (tmp_path / f"{name}.py").write_text(GIVEN * page.startswith("connector") + code)
    for number, mistake in enumerate(MISTAKES):
        (tmp_path / f"wrong_{number}.py").write_text(
            "from pyrocket.client import ConsumeResult, PushConsumer\n"
            f'PushConsumer("g", path="/s", subscriptions={{}}, {mistake},'
            " listener=lambda messages: ConsumeResult.SUCCESS)\n"
        )
    found = mypy(tmp_path)
    for number, text in enumerate(MISTAKES.values()):
        assert re.search(rf"wrong_{number}\.py:2: error: .*{text}", found), found
    rest = [line for line in found.splitlines() if "error:" in line and "wrong_" not in line]
    assert not rest, found
