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


LENIENT = """
[[tool.mypy.overrides]]
module = [{names}]
disallow_untyped_calls = false
disallow_untyped_defs = false
disallow_incomplete_defs = false
disallow_any_generics = false

[[tool.mypy.overrides]]
module = ["rocketmq.*"]
ignore_missing_imports = true
"""
"""What is not asked of snippets."""


def mypy(folder):
    """Check the files with the settings of the packages, whose types are then in mypy's cache."""
    names = ", ".join(f'"{path.stem}"' for path in sorted(folder.glob("*.py")))
    settings = folder / "pyproject.toml"
    settings.write_text((ROOT / "pyproject.toml").read_text() + LENIENT.format(names=names))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", f"--config-file={settings}", *folder.glob("*.py")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"MYPYPATH": str(folder), "PATH": "/usr/bin:/bin"},
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
