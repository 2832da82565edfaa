"""Simulates other machines: with another Java, without Java, or with a bare environment."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def fake_java(home, version):
    """Create a Java home whose `java -version` reports this version."""
    properties = f"    java.home = {home}\n    java.specification.version = {version}"
    return executable(home / "bin" / "java", f"echo {shlex.quote(properties)} >&2")


def path_without_java(folder):
    """Fill a folder with links to all programs on PATH except java; return it for use as PATH."""
    folder.mkdir(parents=True)
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        # pyenv's shims would find java in other folders.
        for program in place.iterdir() if place.is_dir() and place.name != "shims" else ():
            link = folder / program.name
            if not program.name.startswith("java") and not os.path.lexists(link):
                link.symlink_to(program)
    (folder / "python3").unlink(missing_ok=True)
    (folder / "python3").symlink_to(sys.executable)
    return str(folder)


def bare_environment(**changes):
    """Return the environment without the test run's variables; a change to None removes one."""
    ours = ("PYTHONPATH", "PYSPARK_PYTHON", "PYROCKET_STORE", "VIRTUAL_ENV")
    kept = {key: value for key, value in os.environ.items() if key not in ours}
    changed = {key: value for key, value in {**kept, **changes}.items() if value is not None}
    return {key: str(value) for key, value in changed.items()}


def copy_checkout(folder):
    """Copy the checkout without build results, as a clone would have it."""
    built = (
        ".git",
        ".venv",
        "build",
        "dist",
        "*.egg-info",
        "__pycache__",
        ".*_cache",
        ".hypothesis",
    )
    return shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*built))


SOURCE_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


def pass_for(patch, module):
    """Make this process look like one that runs this module as its main module."""
    patch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name=module))
