"""Public names exist, are documented, and are cheap to import."""

import ast
import importlib
import inspect
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyrocket
import pytest
from pyrocket import Message, Store

README = Path(__file__).resolve().parents[1] / "README.md"
PACKAGES = ["pyrocket", "pyrocket.client", "pyspark_pyrocket"]
HEAVY = {"grpc", "numpy", "pandas", "pyarrow"}

# Pretends that modules are not installed, or too old to have the requested names.
BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in {blocked!r} or name.startswith(tuple(n + "." for n in {blocked!r})):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""

PLAN = """
from pyspark.sql.types import BinaryType, StructType
from pyspark_pyrocket import DefaultSource
source = DefaultSource({{"path": {path!r}, "topic": "T", "startingOffsets": "earliest"}})
reader = source.streamReader(StructType().add("body", BinaryType()))
start = reader.initialOffset()
assert reader.partitions(start, reader.latestOffset(start, None))
"""


def run_python(code):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_after(code):
    return set(
        json.loads(run_python(f"{code}\nimport json, sys; print(json.dumps([*sys.modules]))"))
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_importable_and_documented(package):
    module = importlib.import_module(package)
    assert module.__doc__
    assert len(module.__all__) == len(set(module.__all__))
    for name in module.__all__:
        public = getattr(module, name)
        if inspect.isclass(public) or inspect.isroutine(public):
            assert public.__doc__, f"{package}.{name} has no docstring"


def test_dir_lists_public_names_that_are_not_imported_yet():
    asked = [f"import {name}; print(*dir({name}))" for name in PACKAGES]
    for name, listed in zip(PACKAGES, run_python("\n".join(asked)).splitlines(), strict=True):
        assert {*importlib.import_module(name).__all__} <= {*listed.split()}


@pytest.mark.parametrize("package", ["pyrocket", "pyrocket.client"])
def test_type_checkers_see_the_same_public_names(package):
    module = importlib.import_module(package)
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    names = [
        alias for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert all(name.asname == name.name for name in names)
    assert sorted(name.name for name in names) == module.__all__


def test_the_version_is_that_of_setup_py():
    setup = Path(__file__).resolve().parents[1] / "setup.py"
    assert f'version="{pyrocket.__version__}"' in setup.read_text()


@pytest.mark.heavy
@pytest.mark.skipif(find_spec("pdoc") is None, reason="needs pdoc: .[dev]")
def test_the_api_reference_has_every_public_name(tmp_path):
    script = Path(__file__).with_name("support") / "api_reference.py"
    command = [sys.executable, script, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for package in PACKAGES:
        page = (tmp_path / f"{package.replace('.', '/')}.html").read_text()
        names = importlib.import_module(package).__all__
        assert not [name for name in names if f'id="{name}"' not in page]
    assert "Attributes:</h6>" in (tmp_path / "pyrocket/client.html").read_text()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_method_is_documented(package):
    module = importlib.import_module(package)
    everything = [getattr(module, name) for name in module.__all__]
    for public in filter(inspect.isclass, everything):
        own = [name for name in vars(public) if not name.startswith("_")]
        bare = [name for name in own if callable(getattr(public, name))]
        assert not [name for name in bare if not inspect.getdoc(getattr(public, name))]


def test_importing_the_store_imports_no_heavy_package():
    loaded = modules_after("import pyrocket, pyrocket.client")
    assert not loaded & {*HEAVY, "click", "pyspark", "pyspark_pyrocket", "rich"}


def test_importing_the_connector_imports_only_light_modules_besides_pyspark():
    # Modules that pyspark imports are ignored.
    before = modules_after("import pyspark.sql.datasource")
    added = modules_after("import pyspark_pyrocket") - before
    assert not added & {*HEAVY, "pyrocket.store"}
    assert not {
        name
        for name in added
        if name.startswith(("pyrocket.wire", "pyrocket.remote", "pyrocket.formats"))
    }


def test_planning_a_stream_does_not_import_pandas(tmp_path):
    """pyarrow imports pandas for the first value that it converts, which takes half a second."""
    with Store.open(tmp_path / "store", create=True) as store:
        store.append(Message(topic="T", body=b"1"))
    loaded = modules_after(PLAN.format(path=str(tmp_path / "store")))
    assert "pyarrow.compute" in loaded
    assert "pandas" not in loaded


def test_the_first_use_without_file_locks_as_on_windows_fails_as_documented():
    code = BLOCKER.format(blocked=["fcntl"]) + (
        "import pyrocket, pyspark_pyrocket\n"
        "try:\n    pyrocket.Store\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    printed = run_python(code).strip()
    assert f"`ModuleNotFoundError: {printed}`" in README.read_text()


@pytest.mark.parametrize(
    "blocked",
    [
        ["pyspark"],
        ["pyspark.sql.datasource"],  # before 4.0
        ["pyspark.sql.streaming.datasource"],  # before 4.2
    ],
)
def test_any_pyspark_can_be_imported_and_the_error_of_an_old_one_names_the_required_version(
    blocked,
):
    code = BLOCKER.format(blocked=blocked) + (
        "from pyspark_pyrocket import DefaultSource\n"
        "try:\n    DefaultSource({'path': '/x', 'topic': 't'}).schema()\n"
        "except Exception as error:\n    print(error)"
    )
    assert "4.2" in run_python(code)


def test_commands_on_a_directory_need_neither_grpc_nor_protobuf(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store:
        store.append(Message(topic="t", body=b"1"))
    commands = ["topic list", "message show t", "group list", "broker status"]
    code = BLOCKER.format(blocked=["google", "grpc"]) + (
        "from pyrocket.tools.cli import main\n"
        f"for command in {commands!r}:\n"
        f"    words = [*command.split(), '--path', {str(tmp_path / 'store')!r}]\n"
        "    try:\n        main(words)\n"
        "    except SystemExit as ended:\n        print('status', ended.code)"
    )
    lines = run_python(code).splitlines()
    statuses = [line for line in lines if line.startswith("status ")]
    assert statuses == ["status 0"] * 3 + ["status 1"], "no broker runs"
