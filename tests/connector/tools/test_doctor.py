import json
import os
import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from pyspark_pyrocket.tools import doctor as package
from pyspark_pyrocket.tools.doctor import checks as interpreter_checks
from pyspark_pyrocket.tools.doctor import discovery, doctor
from pyspark_pyrocket.tools.doctor.checks import (
    check_java,
    check_pyspark,
    check_python,
    check_space,
    check_worker,
    judge_space,
    pyspark_version,
)
from pyspark_pyrocket.tools.doctor.discovery import check_discovery
from pyspark_pyrocket.tools.doctor.report import Verdict, fail, ok, warn
from pyspark_pyrocket.tools.java import JavaNotFoundError
from pyspark_pyrocket.tools.python_link import python_for_spark
from support.json_manual import Checker
from support.machines import executable


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install another top-level module for the workers."""

    def install(name, text):
        (tmp_path / f"{name}.py").write_text(text)

    paths = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    monkeypatch.setenv("PYTHONPATH", paths)
    return install


def test_packages_that_hide_all_sources_are_reported(installed):
    installed("pyspark_bad", "raise RuntimeError('boom')")
    installed("pyspark_ends", "import os; os._exit(3)")
    installed("pyspark_text", "DefaultSource = 'a text'")
    *culprits, ours = check_discovery(sys.executable)
    names = ["pyspark_bad", "pyspark_ends", "pyspark_text"]
    for name, check in zip(names, culprits, strict=True):
        assert check.verdict is Verdict.FAIL
        assert name in check.name
        assert f"uninstall {name}" in check.remedy
    assert ours.verdict is Verdict.FAIL
    assert f"hidden by {', '.join(names)}" in ours.found
    assert "register" in ours.remedy


def test_the_source_is_found_as_spark_finds_it_beside_other_packages(installed):
    installed("pyspark_helpers", "")
    installed("pyspark_odd", "print('noise')\nclass DefaultSource: pass")
    installed("pyspark_twin", "from pyspark_pyrocket import DefaultSource")
    odd, twin, ours = check_discovery(sys.executable)
    assert odd.verdict is Verdict.WARN
    assert "pyspark_odd" in odd.name
    assert twin.verdict is Verdict.WARN
    assert "also offers" in twin.found
    assert ours.verdict is Verdict.OK, ours


def test_a_package_missing_in_the_workers_python_is_reported(monkeypatch):
    monkeypatch.setattr(discovery, "_probe", lambda python, *arguments: [])
    (found,) = check_discovery(sys.executable)
    assert found.verdict is Verdict.FAIL
    assert "PYTHONPATH" in found.remedy


def test_the_python_of_the_tests_is_supported(monkeypatch):
    assert check_python().verdict is Verdict.OK
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    assert "Use Python 3.10 or newer" in check_python().remedy


def test_a_python_that_cannot_list_modules_is_reported():
    (found,) = check_discovery("/no/such/python")
    assert found.verdict is Verdict.FAIL


def test_matching_workers_pass():
    assert check_worker(python_for_spark(sys.executable)).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("echo '[[3, 1], true]'", "another minor version"),
        (f"echo '[{list(sys.version_info[:2])}, false]'", "without pyarrow"),
        ("exit 1", "does not run"),
        ("echo hello", "does not run"),
    ],
)
def test_workers_that_spark_would_refuse_are_reported_with_the_remedy(tmp_path, answer, reason):
    found = check_worker(str(executable(tmp_path / "python3", answer)))
    assert found.verdict is Verdict.FAIL
    assert reason in found.found
    assert f"PYSPARK_PYTHON={python_for_spark(sys.executable)}" in found.remedy


def test_an_interpreter_whose_path_has_a_space_is_reported_with_a_path_that_works(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    python = executable(tmp_path / "My Projects" / "bin" / "python3", "exit 1")
    found = check_worker(str(python))
    assert found.verdict is Verdict.FAIL
    assert "has a space" in found.found
    link = found.remedy.split("PYSPARK_PYTHON=")[1].split()[0]
    assert os.path.samefile(link, python)


@pytest.mark.parametrize("given", ["PYSPARK_PYTHON", "PATH"])
def test_the_interpreter_that_spark_would_start_is_examined(tmp_path, monkeypatch, given):
    """PYSPARK_PYTHON if set, otherwise `python3` on PATH; not the Python of the doctor."""
    asked = tmp_path / "asked"
    other = executable(tmp_path / "python3", f'echo 1 >> {asked}; exec {sys.executable} "$@"')
    if given == "PYSPARK_PYTHON":
        monkeypatch.setenv(given, str(other))
    else:
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        monkeypatch.setenv(given, f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    checks = {check.name: check for check in package.examine(None)}
    named = f"{other} (PYSPARK_PYTHON)" if given == "PYSPARK_PYTHON" else "python3 (the default)"
    assert checks["workers"].found.startswith(named)
    assert len(asked.read_text().split()) >= 2, "for its version, and for what Spark finds there"


def test_pyspark_without_metadata_has_the_version_of_its_module(monkeypatch):
    """A Spark distribution on PYTHONPATH has no package metadata."""

    def version(name):
        raise PackageNotFoundError(name)

    known = pyspark_version()
    monkeypatch.setattr(interpreter_checks, "version", version)
    assert pyspark_version() == known > (4,)


def test_a_missing_worker_interpreter_is_reported():
    assert check_worker("/no/such/python").verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("installed_version", "python", "verdict"),
    [
        ((4, 3, 0), (3, 11), Verdict.OK),
        ((4, 2, 1), (3, 10), Verdict.OK),
        ((4, 3, 0), (3, 10), Verdict.FAIL),
        ((4, 1, 0), (3, 12), Verdict.FAIL),
    ],
)
def test_pyspark_must_be_recent_and_support_this_python(
    monkeypatch, installed_version, python, verdict
):
    monkeypatch.setattr(interpreter_checks, "pyspark_version", lambda: installed_version)
    monkeypatch.setattr(interpreter_checks.sys, "version_info", (*python, 0))
    found = check_pyspark()
    assert found.verdict is verdict
    assert bool(found.remedy) is (verdict is Verdict.FAIL)


def test_a_missing_pyspark_is_reported(monkeypatch):
    def missing():
        raise ImportError("No module named 'pyspark'")

    monkeypatch.setattr(interpreter_checks, "pyspark_version", missing)
    assert "pip install" in check_pyspark().remedy


def test_a_missing_java_is_reported(monkeypatch):
    def missing():
        raise JavaNotFoundError("No Java.", "Install one.")

    monkeypatch.setattr(interpreter_checks, "find_java", missing)
    assert check_java() == fail("java", "No Java.", "Install one.")


@pytest.mark.parametrize(
    ("used", "verdict"),
    [
        (74.9, Verdict.OK),
        (75.0, Verdict.WARN),
        (85.0, Verdict.WARN),
        (89.9, Verdict.WARN),
        (90.0, Verdict.FAIL),
    ],
)
def test_the_space_check_uses_the_disk_thresholds_of_file_cleaning(used, verdict):
    assert judge_space(used, "").verdict is verdict


def test_space_is_measured_where_the_store_will_be(tmp_path):
    assert str(tmp_path) in check_space(f"file:{tmp_path}/not/yet/there").found
    assert check_space(None).verdict is Verdict.OK


def test_free_space_and_usage_are_those_that_df_shows(tmp_path, monkeypatch):
    blocks = SimpleNamespace(f_blocks=100, f_bfree=60, f_bavail=50, f_frsize=1 << 28)
    monkeypatch.setattr(os, "statvfs", lambda path: blocks)
    assert check_space(str(tmp_path)).found.endswith("44 % full, 12.5 GiB free")


@pytest.mark.parametrize(
    ("checks", "status"),
    [
        ([ok("a", "fine")], 0),
        ([ok("a", "fine"), warn("b", "soon", "act")], 0),
        ([warn("b", "soon", "act"), fail("c", "broken", "mend")], 1),
    ],
)
def test_only_a_failed_check_makes_the_exit_status_1(monkeypatch, checks, status):
    monkeypatch.setattr(package, "examine", lambda store: checks)
    for arguments in ([], ["--json"]):
        done = CliRunner().invoke(doctor, arguments)
        assert done.exit_code == status
        for check in checks:
            assert check.found in done.output
            assert check.remedy in done.output


def test_json_contains_every_check_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("PYROCKET_STORE", str(tmp_path))
    done = CliRunner().invoke(doctor, ["--json"])
    answer = json.loads(done.output)
    Checker().check("doctor", answer)
    names = [check["name"] for check in answer["checks"]]
    assert names[:4] == ["python", "workers", "pyspark", "java"]
    assert str(tmp_path) in answer["checks"][-1]["found"]
    assert answer["ok"] == (done.exit_code == 0)


def test_discovery_uses_the_drivers_interpreter_as_spark_does(tmp_path, monkeypatch):
    """PYSPARK_DRIVER_PYTHON=jupyter hides every Python data source."""
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", str(executable(tmp_path / "jupyter", "exit 1")))
    found = {check.name: check for check in package.examine(None)}
    assert found["workers"].verdict is Verdict.OK
    assert found["discovery"].verdict is Verdict.FAIL
    assert "jupyter" in found["discovery"].found
