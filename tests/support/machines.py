"""Makes machines look different to a test: other Javas, none at all, a bare environment."""

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
    """A Java home that answers what a Java of that version answers to `-version`."""
    properties = f"    java.home = {home}\n    java.specification.version = {version}"
    return executable(home / "bin" / "java", f"echo {shlex.quote(properties)} >&2")


def path_without_java(folder):
    """A folder with links to every program on PATH but java: the value of a PATH without it."""
    folder.mkdir(parents=True)
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        # pyenv's shims find java again by themselves.
        for program in place.iterdir() if place.is_dir() and place.name != "shims" else ():
            link = folder / program.name
            if not program.name.startswith("java") and not os.path.lexists(link):
                link.symlink_to(program)
    (folder / "python3").unlink(missing_ok=True)
    (folder / "python3").symlink_to(sys.executable)
    return str(folder)


def bare_environment(**changes):
    """The environment less what this test run added to it; None removes a variable."""
    ours = ("PYTHONPATH", "PYSPARK_PYTHON", "PYROCKET_STORE", "VIRTUAL_ENV")
    kept = {key: value for key, value in os.environ.items() if key not in ours}
    changed = {key: value for key, value in {**kept, **changes}.items() if value is not None}
    return {key: str(value) for key, value in changed.items()}


def copy_checkout(folder):
    """A copy of the checkout as a clone would have it, without what was built in it."""
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
    """Have this process look like one that runs this module as its main one."""
    patch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name=module))
