"""Spark imports this package in every process, and ignores all Python sources if one fails."""

import subprocess
import sys
import textwrap

import pyspark_pyrocket
import pytest
from pyrocket.errors import UnsupportedError
from pyspark.sql.datasource import DataSource
from pyspark_pyrocket import support


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_contains_one_source_with_the_name_of_the_format():
    assert "DefaultSource" in pyspark_pyrocket.__all__
    assert issubclass(pyspark_pyrocket.DefaultSource, DataSource)
    assert pyspark_pyrocket.DefaultSource.name() == "pyrocket"


def test_importing_the_package_imports_only_a_few_of_its_own_modules():
    code = """
        import sys
        import pyspark.sql.datasource
        before = set(sys.modules)
        import pyspark_pyrocket
        print(*sorted(set(sys.modules) - before))
    """
    assert run(code).split() == [
        "pyspark_pyrocket",
        "pyspark_pyrocket.boundary",
        "pyspark_pyrocket.datasource",
        "pyspark_pyrocket.support",
        "pyspark_pyrocket.worker",
    ]


def test_a_pyspark_without_python_sources_is_reported_when_the_format_is_used():
    code = """
        import sys
        sys.modules["pyspark.sql.datasource"] = None
        import pyspark_pyrocket
        try:
            pyspark_pyrocket.DefaultSource({})
        except Exception as error:
            print(error)
    """
    output = run(code)
    assert output.startswith("[UNSUPPORTED_PYSPARK] pyrocket needs pyspark 4.2 or newer")
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda source: source.schema(),
        lambda source: source.reader(schema=None),
        lambda source: source.streamReader(schema=None),
        lambda source: source.writer(schema=None, overwrite=False),
        lambda source: source.streamWriter(schema=None, overwrite=False),
    ],
)
def test_an_older_pyspark_is_rejected_in_one_line_with_the_version_needed(use, monkeypatch):
    monkeypatch.setattr(support, "find_spec", lambda name: None)
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    with pytest.raises(UnsupportedError, match=r"4\.2 or newer \(this is 4\.1\.4\)") as info:
        use(pyspark_pyrocket.DefaultSource({}))
    assert "\n" not in str(info.value)


def test_the_docstring_names_every_option():
    from pyspark_pyrocket.options.table import TABLE

    for option in TABLE:
        assert option.name in pyspark_pyrocket.DefaultSource.__doc__
