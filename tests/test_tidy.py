"""House rules that a compiler does not check: imports and sizes."""

import ast
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from statistics import median

import pyrocket
import pytest
from bench.house import statements

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 600
FILE_LINES_MEDIAN = 150
CLASS_LINES_MAX = 300
FUNCTION_LINES_MAX = 50

LAYERS = [
    ["errors"],
    ["base", "values"],
    ["formats", "disk"],
    ["filters", "log"],
    ["index.queues", "wire"],
    ["index.keys", "remote", "remoting"],
    ["metadata"],
    ["engine"],
    ["engine.parts", "remoting.batches"],
    ["services.delay", "services.transactions", "services.sink", "services.consumption"],
    ["services.services"],
    ["views", "remote.admin", "remote.sink", "remoting.sink"],
    ["store"],
    ["broker"],
    ["server", "client"],
    ["tools.rocketmq", "server.replica"],
    ["testing", "tools.verify", "tools.session"],
    ["tools.summaries"],
    ["tools.repair", "tools.notebook"],
    ["tools.cli"],
    ["tools.pytest_plugin", "__main__"],
]
"""Packages and their ranks, from bottom to top. A package imports only from packages of lower
ranks.
"""
OS_OPERATIONS = (
    *("open", "listdir", "scandir", "walk", "fwalk", "truncate", "utime", "chmod", "chown"),
    *("rename", "replace", "link", "symlink", "unlink", "remove", "rmdir", "removedirs"),
    *("mkdir", "makedirs", "mkfifo", "mknod"),
)
PATH_OPERATIONS = (
    *("read_bytes", "read_text", "write_bytes", "write_text", "iterdir", "glob", "rglob"),
    *("unlink", "rename", "rmdir", "mkdir", "touch", "chmod", "symlink_to", "hardlink_to"),
)
PATHS_OUTSIDE_DISK = {
    "broker.files": ".read_bytes",
    "base.credentials": ".read_bytes",
    "wire.descriptors": ".read_bytes",
    "wire.proto.__main__": ".glob",
    "tools.verify.files": "os.scandir",
    "tools.verify.metadata": ".glob",
    "tools.verify.keys": ".iterdir",
    "tools.verify.state": ".glob",
    "tools.cli": "os.open",
    "tools.cli.message": ".read_bytes",
    "services.delay.timer_index": "os.listdir",
    "metadata.identity": ".iterdir",
    "metadata.queue_ends": "os.listdir os.open",
    "metadata.store_sizes": ".glob",
    "engine.parts.snapshot": ".glob .iterdir os.walk",
    "services.delay.java_handover": ".glob",
}
"""Module → the operations by which it opens, lists or changes paths; these operations should move
to `disk`.
"""
CLIENT_SHELL = (
    *(f"pyrocket.client.deduplication.{name}" for name in ("cache", "listener", "sqlite")),
    "pyrocket.client.deduplication.transaction",
    *(f"pyrocket.client.{name}" for name in ("instance", "base", "server", "embedded", "remote")),
    "pyrocket.client.local_offsets",
    *(f"pyrocket.client.{name}" for name in ("producer", "pull_consumer", "push_consumer")),
    *(f"pyrocket.client.{name}" for name in ("local_transactions", "tracing", "group_lag")),
)
"""The modules of `pyrocket.client` that may use threads, connections and clocks. All others are the
core, which tests run on a simulated clock.
"""
NOT_IN_CLIENT_CORE = (
    *("threading.", "queue.", "concurrent.", "multiprocessing.", "sched.", "signal."),
    *("socket.", "select.", "selectors.", "ssl.", "grpc.", "pyrocket.wire.", "pyrocket.remote."),
    *("time.", "pyrocket.base.clock.", "secrets.", "uuid."),
    *("asyncio.to_thread.", "asyncio.open_connection.", "asyncio.create_subprocess_exec."),
)
"""The core runs in any event loop; times are those of the loop, which may be simulated."""
RANKS = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
# `pyrocket/__init__.py` defines the public names; it may import from packages up to this rank.
RANKS[""] = RANKS["broker"]
CONNECTOR_MAY_IMPORT = ("pyrocket.errors.", "pyrocket.base.config.", "pyrocket.tools.notebook.")
# Both packages import their public names late.
CONNECTOR_MAY_IMPORT += ("pyrocket.base.lazy_names",)
# Log lines and commands show counts alike; options and commands name addresses alike.
CONNECTOR_MAY_IMPORT += ("pyrocket.base.arguments.",)
# All commands share these modules.
CONNECTOR_MAY_IMPORT += (
    *("pyrocket.tools.cli.command_group.", "pyrocket.tools.cli.frame."),
    "pyrocket.tools.cli.place.",
)
CONNECTOR_HOMES = {
    "pyrocket.Store": "pyspark_pyrocket.transport.path",
    "pyrocket.decode_slices": "pyspark_pyrocket.source.task",
}
"""Names of the store that only one module of the connector may import: its adapter or its decoder.
"""
ADAPTER = "pyspark_pyrocket.transport.path."
CONNECTOR_LAYERS = [
    ["support", "worker", "arrow_types"],
    ["boundary", "options"],
    ["transport", "json"],
    ["columns"],
    ["source", "sink"],
    ["datasource"],
    ["", "tools"],
]
CONNECTOR_RANKS = {room: rank for rank, rooms in enumerate(CONNECTOR_LAYERS) for room in rooms}


@lru_cache(maxsize=1)
def parts(source):
    """Return the tree and the statements of a file, for one check after the other."""
    tree = ast.parse(source)
    return tree, statements(tree)


@lru_cache(maxsize=1)
def nodes(source):
    """Return all nodes of a file, also those of expressions."""
    return [*ast.walk(parts(source)[0])]


def sources(*folders):
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(source):
    """Return dotted names; `from a.b import c` gives a.b.c, for any kind of c."""
    for node in parts(source)[1]:
        if isinstance(node, ast.Import):
            yield from (f"{alias.name}." for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(module, ranks):
    """Return the longest name in LAYERS that contains the module, '' for the package itself, or
    None.
    """
    parts = module.split(".")[1:]
    names = (".".join(parts[:size]) for size in range(len(parts), -1, -1))
    return next((name for name in names if name in ranks and (name or not any(parts))), None)


def store_fault(module, name):
    """Return why a module of `pyrocket` may not import this name, or None."""
    package = name.split(".")[0]
    if package.startswith(("pyspark", "py4j")):
        return "the store does not import Spark"
    if package != "pyrocket":
        return None
    own, other = room(module, RANKS), room(name, RANKS)
    if not other:
        return "inside the package, import from the module that defines it"
    if own is None:
        return f"{module} is not in the table of layers"
    pair = {own.split(".")[0], other.split(".")[0]}
    if pair == {"server", "remote"} and own != "server.replica":  # It is a client of its primary.
        return "a server and its clients do not import each other"
    if own != other and RANKS[own] == RANKS[other] and own:
        return f"{own} and {other} may not import each other"
    return f"{other} is above {own}" if RANKS[other] > RANKS[own] else None


def connector_fault(module, name, public):
    """Return why a module of `pyspark_pyrocket` may not import this name, or None."""
    if name.startswith("pyspark_pyrocket."):
        if name.startswith(ADAPTER) and not module.startswith("pyspark_pyrocket.transport."):
            return "only transport/ may import this"
        own, other = (room(each, CONNECTOR_RANKS) for each in (module, name))
        if own is None or other is None:
            return f"{module if own is None else name} is not in the table of layers"
        higher = CONNECTOR_RANKS[other] > CONNECTOR_RANKS[own]
        beside = own != other and CONNECTOR_RANKS[other] == CONNECTOR_RANKS[own] and own
        return f"{other} is not below {own}" if higher or beside else None
    if name == "pyrocket." or not name.startswith("pyrocket."):
        return None
    if name.startswith(CONNECTOR_MAY_IMPORT):
        return None
    home = CONNECTOR_HOMES.get(name, module)
    if module != home:
        return f"only {home} may"
    return None if name.removeprefix("pyrocket.") in public else "not public in pyrocket"


def import_faults(module, source, public=()):
    for name in imported_names(source):
        in_store = module.split(".")[0] == "pyrocket"
        fault = store_fault(module, name) if in_store else connector_fault(module, name, public)
        if fault:
            yield f"{module} imports {name}: {fault}"


def client_core_faults(module, source):
    """Return the imports of threads, connections and clocks by the core of `pyrocket.client`."""
    if module.startswith("pyrocket.client.") and module not in CLIENT_SHELL:
        for name in imported_names(source):
            if name.startswith(NOT_IN_CLIENT_CORE):
                yield f"{module} imports {name}"


def size_faults(label, source):
    lines = len(source.splitlines())
    if lines > FILE_LINES_MAX:
        yield f"{label}: {lines} lines"
    for node in parts(source)[1]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            length = node.end_lineno - node.lineno + 1
            allowed = CLASS_LINES_MAX if isinstance(node, ast.ClassDef) else FUNCTION_LINES_MAX
            if length > allowed:
                yield f"{label}: {node.name} has {length} lines"


def name_faults(label, source):
    """Return uses of names that the linter cannot ban: in modules that may use `struct`, the rule
    that bans names is off.
    """
    for node in nodes(source):
        if isinstance(node, ast.Attribute) and node.attr == "pack_into":
            yield f"{label}:{node.lineno}: pack_into writes fields in parts"
        may_be_clock = isinstance(node, ast.Attribute) and node.attr in ("time", "time_ns")
        clock = may_be_clock and ast.unparse(node.value) == "time"
        if clock and not label.endswith("clock.py"):
            yield f"{label}:{node.lineno}: take a Clock"


def path_operations(source):
    """Return every call in a module that opens, lists or changes a path: `os.open`, `.unlink`,
    `open`.
    """
    for node in nodes(source):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        package, _, name = called.rpartition(".")
        if (
            called in ("open", "mmap.mmap")
            or package == "shutil"
            or (package == "os" and name in OS_OPERATIONS)
        ):
            yield called
        elif package not in ("", "io") and name in PATH_OPERATIONS:
            yield f".{name}"


def path_faults(module, source):
    if module.startswith("pyrocket.disk."):
        return
    allowed = PATHS_OUTSIDE_DISK.get(module.removeprefix("pyrocket."), "").split()
    for operation in {*path_operations(source)} - {*allowed}:
        yield f"{module}: {operation} belongs in pyrocket.disk, which follows no links"


def faults_of(path):
    """Yield (kind of fault, fault) of a file."""
    top, source = path.relative_to(ROOT).parts[0], path.read_text()
    module, label = module_name(path), str(path.relative_to(ROOT))
    checks = [("size", size_faults(label, source))]
    if top in ("store", "connector"):
        checks.append(("import", import_faults(module, source, pyrocket.__all__)))
        checks.append(("name", name_faults(label, source)))
    if top == "store":
        checks.append(("client core", client_core_faults(module, source)))
        checks.append(("path", path_faults(module, source)))
    return [(kind, fault) for kind, faults in checks for fault in faults]


@pytest.fixture(scope="module")
def faults():
    """Return kind → faults. Each file is parsed once, and its nodes are not kept."""
    packages = ("store/pyrocket", "store/pyrocket/client")
    stubs = [ROOT / package / "__init__.pyi" for package in packages]
    found = defaultdict(list)
    for path in [*sources("store", "connector", "examples", "tests"), *stubs]:
        for kind, fault in faults_of(path):
            found[kind].append(fault)
    return found


@pytest.mark.parametrize("kind", ["size", "import", "name", "client core", "path"])
def test_no_file_breaks_a_rule(faults, kind):
    """Files and functions are small; imports point down only; the core of the client uses no
    threads, connections or clocks; torn fields and hidden clocks are banned; paths of a store are
    opened and changed in `disk` alone.
    """
    assert not faults[kind], "\n".join(faults[kind])


@pytest.mark.parametrize(
    "source",
    [
        *("import threading", "from time import monotonic", "from concurrent import futures"),
        *("import grpc", "from pyrocket.remote.client import Client", "import pyrocket.base.clock"),
    ],
)
def test_a_thread_connection_or_clock_in_the_core_of_the_client_is_reported(source):
    assert list(client_core_faults("pyrocket.client.new", source))
    assert not list(client_core_faults("pyrocket.remote.new", source))
    assert not list(client_core_faults("pyrocket.client.new", "from datetime import datetime"))


def test_half_of_the_files_are_short():
    lengths = [len(path.read_text().splitlines()) for path in sources("store", "connector")]
    assert median(lengths) <= FILE_LINES_MEDIAN


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("pyrocket.log.commit_log", "from pyrocket.index.queues.consume_queue import X"),
        ("pyrocket.log.commit_log", "from pyrocket import Store"),
        ("pyrocket.log.commit_log", "import pyrocket"),
        ("pyrocket.log.commit_log", "def late():\n    import pyrocket.store"),
        ("pyrocket.formats.record", "from pyrocket.disk.layout import log_name"),
        ("pyrocket.errors", "from pyrocket.formats.record import Record"),
        (
            "pyrocket.services.delay.schedule_service",
            "from pyrocket.services.sink.sink import Sink",
        ),
        ("pyrocket.services.delay.schedule_service", "from pyrocket.services.sink import sink"),
        ("pyrocket.index.queues.rebuild", "from pyrocket.index.keys.key_index import KeyIndex"),
        ("pyrocket", "from pyrocket.tools.cli import main"),
        ("pyrocket.helpers", "from pyrocket.errors import StoreDamagedError"),
        ("pyrocket.tools.cli", "import pyspark_pyrocket.tools.doctor"),
        ("pyrocket.store", "from pyspark.sql import SparkSession"),
        ("pyspark_pyrocket.source.batch_reader", "from pyrocket.formats.record import Record"),
        ("pyspark_pyrocket.options.read", "from pyspark_pyrocket.source.task import LOG"),
        ("pyspark_pyrocket.source.batch_reader", "from pyrocket import formats"),
        ("pyspark_pyrocket.source.batch_reader", "from pyrocket import Store"),
        ("pyspark_pyrocket.tools.lag.measure", "from pyrocket import decode_slices"),
        (
            "pyspark_pyrocket.tools.lag.measure",
            "from pyspark_pyrocket.transport.path import PathTarget",
        ),
    ],
)
def test_an_import_of_a_higher_or_equal_rank_is_reported(module, source):
    assert list(import_faults(module, source, ["Store"]))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("pyrocket", "from pyrocket.store import Store"),
        ("pyrocket.base.config", "from pyrocket.errors import OptionError"),
        ("pyrocket.store", "from pyrocket.metadata.topics import Topics"),
        (
            "pyrocket.services.delay.schedule_service",
            "from pyrocket.log.commit_log import CommitLog",
        ),
        ("pyrocket.index.keys.key_index", "from pyrocket.index.queues.dispatcher import X"),
        ("pyrocket.log.flusher", "from pyrocket.log.commit_log import CommitLog\nimport numpy"),
        ("pyspark_pyrocket.transport.path", "from pyrocket import Store\nimport pyspark.sql"),
        ("pyspark_pyrocket.source.batch_reader", "from pyrocket.errors import OptionError"),
    ],
)
def test_an_import_of_a_lower_rank_is_allowed(module, source):
    assert not list(import_faults(module, source, ["Store"]))


def test_long_files_classes_and_functions_are_reported():
    function = "def long():\n" + "    pass\n" * 50
    assert list(size_faults("x", function)) == ["x: long has 51 lines"]
    assert not list(size_faults("x", function.replace("    pass\n", "", 1)))
    method = "    def short(self):\n" + "        pass\n" * 49
    assert list(size_faults("x", "class Long:\n" + method * 6)) == ["x: Long has 301 lines"]
    assert list(size_faults("x", "pass\n" * 601)) == ["x: 601 lines"]


@pytest.mark.parametrize(
    "source",
    [
        *("open(path)", "os.unlink(path)", "shutil.rmtree(path)", "mmap.mmap(0, 1)"),
        *("path.read_bytes()", "layout.abort.unlink()", "folder.iterdir()"),
    ],
)
def test_an_operation_on_a_path_outside_disk_is_reported(source):
    assert list(path_faults("pyrocket.index.new", source))
    assert not list(path_faults("pyrocket.index.new", "io.unlink(path), text.replace('a', 'b')"))


def test_banned_names_are_reported():
    assert list(name_faults("formats/x.py", "import struct\nstruct.pack_into('q', b, 0, 1)"))
    assert list(name_faults("formats/x.py", "import time\ntime.time()"))
    assert not list(name_faults("store/pyrocket/base/clock.py", "import time\ntime.time_ns()"))
