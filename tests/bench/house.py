"""Measures the layout of the product, and the number of its files that a call passes through.

    python tests/bench/house.py                       measures this checkout
    python tests/bench/house.py --root ../other       measures another checkout by the same rules
    python tests/bench/house.py --json                prints the result as one JSON object
    python tests/bench/house.py --files NAME          prints the files of one walk (append_batch, …)

Run it with the Python of the environment that has pyspark. No Spark session is started.

Rules. A *room* is a top-level part of the product: each package of `pyrocket`, each module beside
these packages (including `__init__` and `__main__`), and the connector as one room. An *arrow* is a
pair of rooms of which one imports the other, in any place; an *upward* arrow breaks the order in
`tests/test_tidy.py`. *Floors* are the rooms of the longest chain of arrows; the rooms of a cycle
are counted as one. Code lines are all lines except blank lines, docstrings, comments and imports.

*Doubled names* are public classes and types at the top of more than one module. *Calls in a row*
are those of a micro-batch that reads new messages over `endpoint`: its end, its partitions and its
commit; with the look for the next one after it. No two of them run at the same time.

A *walk* is one call on a small store in memory, after the same call has run once in this process.
*Crossings* are calls whose caller, the nearest frame of the product, is in another file; *depth* is
the deepest nesting of calls in the product. Generators count each time they are resumed. The walk
of a broker is that of all threads that serve calls and append.
"""

import argparse
import ast
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from unittest.mock import patch

PRODUCT = ("store/pyrocket", "connector/pyspark_pyrocket")
START_MS, HOUR_MS = 1_700_000_000_000, 3_600_000
NOT_CALLS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<module>"}
"""Comprehensions are calls only before Python 3.12."""

OTHER_THREADS = {"pyrocket-checks", "pyrocket-polls", "pyrocket-services"}
"""The threads of a broker that no call waits for."""


# Layout


def module_of(root, path):
    parts = path.relative_to(root).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module):
    first, *rest = module.split(".")
    return first if first == "pyspark_pyrocket" or not rest else f"{first}.{rest[0]}"


def statements(tree):
    """Return all statements of a module; reading the expressions too takes ten times as long."""
    found = [*tree.body]
    for node in found:
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            found += getattr(node, part, ())
    return found


def imported(nodes, known):
    for node in nodes:
        names = [alias.name for alias in getattr(node, "names", ()) if hasattr(alias, "asname")]
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names]
        for name in names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            while name and name not in known:
                name = name.rpartition(".")[0]
            if name:
                yield name


def arrows(edges):
    """Return room → the rooms that it imports."""
    graph = {room: set() for edge in edges for room in edge}
    for source, target in edges:
        graph[source].add(target)
    return graph


def reachable(graph, room):
    found, waiting = set(), [room]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def circles(graph):
    """Return the sets of rooms that import each other, directly or indirectly."""
    reach = {room: reachable(graph, room) for room in graph}
    return {
        frozenset(other for other in reach[room] if room in reach[other])
        for room in graph
        if room in reach[room]
    }


def floors(graph):
    """Return the longest chain of rooms, from the top down; rooms in a cycle count as one."""
    of = {room: circle for circle in circles(graph) for room in circle}
    of = {room: of.get(room, frozenset([room])) for room in graph}
    below = arrows([(of[a], of[b]) for a in graph for b in graph[a] if of[a] != of[b]])
    chains = {}

    def chain(node):
        if node not in chains:
            chains[node] = [node, *max(map(chain, below[node]), key=len, default=[])]
        return chains[node]

    return max(map(chain, below), key=len)


def kinds_of_lines(source, nodes):
    """Return the kind of each line: blank, docstring, comment, import or code."""
    kinds = ["blank" if not line.strip() else "code" for line in source.splitlines()]
    for number, line in enumerate(source.splitlines()):
        if line.lstrip().startswith("#"):
            kinds[number] = "comment"
    for node in nodes:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        kind = "docstring" if text and isinstance(node.value.value, str) else "import"
        if kind == "docstring" or isinstance(node, ast.Import | ast.ImportFrom):
            kinds[node.lineno - 1 : node.end_lineno] = [kind] * (node.end_lineno - node.lineno + 1)
    return kinds


def lengths(parts, *kinds):
    found = (node for nodes in parts.values() for node in nodes if isinstance(node, kinds))
    return [node.end_lineno - node.lineno + 1 for node in found]


def layout(root):
    """Title → figure."""
    paths = [path for folder in PRODUCT for path in sorted((root / folder).rglob("*.py"))]
    sources = {module_of(root, path): path.read_text() for path in paths}
    trees = {module: ast.parse(source) for module, source in sources.items()}
    parts = {module: statements(tree) for module, tree in trees.items()}
    kinds = [kind for m, source in sources.items() for kind in kinds_of_lines(source, parts[m])]
    edges = [(m, n) for m, nodes in parts.items() for n in imported(nodes, trees) if m != n]
    rooms = [(room_of(a), room_of(b)) for a, b in edges if room_of(a) != room_of(b)]
    graph = arrows(rooms)
    chain = floors(graph)
    files = [len(source.splitlines()) for source in sources.values()]
    classes = lengths(parts, ast.ClassDef)
    functions = lengths(parts, ast.FunctionDef, ast.AsyncFunctionDef)
    connector = root / PRODUCT[1]
    figures = {
        "files": len(files),
        "  of the store": sum(module.startswith("pyrocket") for module in sources),
        "  of the connector": sum(module.startswith("pyspark") for module in sources),
        "lines": len(kinds),
    }
    for kind in ("code", "docstring", "comment", "import", "blank"):
        figures[f"  {kind}"] = kinds.count(kind)
    figures |= {
        "rooms": len(graph),
        "loose modules of the store": len([*(root / PRODUCT[0]).glob("*.py")]),
        "packages of the connector": len([*connector.glob("*/__init__.py")]),
        "loose modules of the connector": len([*connector.glob("*.py")]),
        "arrows between rooms": sum(map(len, graph.values())),
        "  upward, by test_tidy": len(upward(sources)),
        "circles of rooms": len(circles(graph)),
        "circles of modules": len(circles(arrows(edges))),
        "floors": len(chain),
    }
    for name, found in {"file": files, "class": classes, "function": functions}.items():
        figures[f"{name} lines, median"] = int(median(found))
        figures[f"{name} lines, longest"] = max(found)
    figures["doubled public names"] = len(doubled(trees))
    figures["places of paths outside disk"] = paths_outside_disk()
    figures["modules that RemoteSource loads"] = len(modules_loaded(root, "RemoteSource"))
    figures["the longest chain"] = " > ".join("=".join(sorted(node)) for node in chain)
    return figures


def doubled(trees):
    """Return the public names of classes and types that several modules define."""
    count = Counter(name for tree in trees.values() for name in {*types_of(tree)})
    return sorted(name for name, times in count.items() if times > 1)


def types_of(tree):
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [node.name] if isinstance(node, ast.ClassDef) else []
        names += [target.id for target in targets if isinstance(target, ast.Name)]
        yield from (name for name in names if name[0].isupper() and not name.isupper())


def paths_outside_disk():
    """Return how many uses of paths `test_tidy` allows outside `pyrocket.disk`."""
    import test_tidy

    return sum(len(uses.split()) for uses in test_tidy.PATHS_OUTSIDE_DISK.values())


def modules_loaded(root, name):
    """Return the modules of the product that a process loads for one public name."""
    program = f"from pyrocket import {name}; import sys; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(root / "store")}
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [module for module in found.stdout.split() if room_of(module).startswith("pyrocket")]


def calls_of_a_micro_batch(folder):
    """Return the names of the calls to the broker, and those of the next look for messages."""
    from pyrocket import Store
    from pyspark.sql.streaming.datasource import ReadAllAvailable
    from pyspark_pyrocket import DefaultSource
    from support.broker import served

    store, everything = Store.open(folder / "endpoint", create=True), ReadAllAvailable()
    store.topics.create("t", read_queues=1, write_queues=1)
    with served(store) as address:
        source = DefaultSource({"endpoint": address, "topic": "t"})
        reader = source.streamReader(source.schema())
        end = reader.latestOffset(reader.initialOffset(), everything)
        for _ in range(2):
            store.append_batch(rows(50), topic="t")
            start = end
            while end == start:  # The broker streams its version at most every 10 ms.
                with calls_seen() as planned:
                    end = reader.latestOffset(start, everything)
            with calls_seen() as divided:
                reader.partitions(start, end)
                reader.commit(end)
            with calls_seen() as look:
                reader.latestOffset(end, everything)
        reader.stop()
    return planned + divided, look


@contextmanager
def calls_seen():
    """Yield the list of the calls that this thread makes to a broker in a `with` block."""
    from pyrocket import Client

    seen, thread, once = [], threading.get_ident(), Client._repeating

    def recorded(client, name, call):
        if threading.get_ident() == thread:
            seen.append(name)
        return once(client, name, call)

    with patch.object(Client, "_repeating", recorded):
        yield seen


def upward(sources):
    """Return the imports that break the order in the checkout's `test_tidy`, even accepted ones."""
    import pyrocket
    import test_tidy

    with patch.object(test_tidy, "UPWARD", set(), create=True):
        return [
            fault
            for module, source in sources.items()
            for fault in test_tidy.import_faults(module, source, pyrocket.__all__)
        ]


# Walks


class Walk:
    """Counts the calls of functions of the product."""

    FIGURES = ("files", "functions", "calls", "crossings", "depth")

    def __init__(self, root):
        self._folders = tuple(f"{root / folder}{os.sep}" for folder in PRODUCT)
        self._stacks = defaultdict(list)
        self.files, self.functions = set(), set()
        self.calls = self.crossings = self.depth = 0

    @property
    def figures(self):
        numbers = (*map(len, (self.files, self.functions)), self.calls, self.crossings, self.depth)
        return dict(zip(self.FIGURES, numbers, strict=True))

    def count(self, function, *arguments, **more):
        """Call the function, count the calls that it makes, and return its result."""
        sys.setprofile(self.record)
        try:
            return function(*arguments, **more)
        finally:
            sys.setprofile(None)

    def record(self, frame, event, _):
        code, stack = frame.f_code, self._stacks[threading.get_ident()]
        if code.co_name in NOT_CALLS or not code.co_filename.startswith(self._folders):
            return
        if event == "call":
            self.calls += 1
            self.files.add(code.co_filename)
            self.functions.add(code)
            self.crossings += bool(stack) and stack[-1] != code.co_filename
            stack.append(code.co_filename)
            self.depth = max(self.depth, len(stack))
        elif event == "return" and stack:
            stack.pop()


class Walks:
    """Return name → walk. Each walk uses a store below `folder`, and runs after the same call has
    run once.
    """

    def __init__(self, root, folder):
        self._root, self._folder, self.found = root, folder, {}
        self.of_a_store()
        self.of_a_sink()
        self.of_a_source()
        self.of_a_crash()
        self.of_a_broker()

    def walk(self, name, function, *arguments, **more):
        self.found[name] = Walk(self._root)
        return self.found[name].count(function, *arguments, **more)

    def of_a_store(self):
        from pyrocket import Message, Store

        now = [START_MS]
        plain = Message(topic="t", body=b"x", queue_id=0, keys=["k"])
        delayed = Message(topic="t", body=b"x", queue_id=0, delay_level=1)
        store = Store.open(self._folder / "store", create=True, clock=lambda: now[0])
        store.topics.create("t")
        for _ in range(2):
            due_ms = now[0] + HOUR_MS
            timed = Message(topic="t", body=b"x", queue_id=0, deliver_at_ms=due_ms)
            self.walk("append", store.append, plain)
            self.walk("append_batch", store.append_batch, rows(50), topic="t")
            self.walk("append, delay level", store.append, delayed)
            self.walk("append, timer", store.append, timed)
            self.walk("transaction, half and commit", commit, store, plain)
            self.walk("query by key", store.lookup.query, "t", "k")
            end = store.max_offset("t", 0)
            self.walk("scan", listed, store.scan, "t", 0, 0, end)
            for name, ms in (("delay level", 2000), ("timer", HOUR_MS)):
                end = store.max_offset("t", 0)
                now[0] += ms
                self.walk(f"delivery, {name}", store.deliver_due)
                assert store.max_offset("t", 0) == end + 1
        self.walk("clean close", store.close)

    def of_a_sink(self):
        from pyspark.sql.types import StringType, StructField, StructType

        schema = StructType([StructField("body", StringType())])
        source = self.source("sink")
        for _ in range(2):
            writer = self.walk("sink: writer made", source.writer, schema, overwrite=False)
            task = through_spark(writer)
            message = self.walk("sink: staging task", task.write, iter([rows(50, text=True)]))
            self.walk("sink: commit", writer.commit, [through_spark(message)])

    def of_a_source(self):
        from pyrocket import Store
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        source, everything = self.source("source"), ReadAllAvailable()
        reader = source.streamReader(source.schema())
        in_task = through_spark(source.streamReader(source.schema()))
        end = reader.latestOffset(reader.initialOffset(), everything)
        with Store.open(self._folder / "source") as store:
            for _ in range(2):
                store.append_batch(rows(50), topic="t")
                start = through_spark(end)
                end = self.walk("latestOffset, new rows", reader.latestOffset, start, everything)
                reader.latestOffset(end, everything)
                self.walk("latestOffset, idle", reader.latestOffset, end, everything)
                (part,) = self.walk("partitions", reader.partitions, start, end)
                read = self.walk("read task", listed, in_task.read, through_spark(part))
                assert sum(batch.num_rows for batch in read) == 50
        reader.stop()

    def source(self, name):
        """Return Spark's source for a new store with a topic of one queue."""
        from pyrocket import Store
        from pyspark_pyrocket import DefaultSource

        path = self._folder / name
        with Store.open(path, create=True) as store:
            store.topics.create("t", read_queues=1, write_queues=1)
        return DefaultSource({"path": str(path), "topic": "t"})

    def of_a_crash(self):
        """Open a store after a reboot; its last writer did not close it."""
        from pyrocket import Message, Store, StoreConfig

        config = StoreConfig(log_file_bytes=1 << 20, index_slots=100, index_items=400)
        path, clock = self._folder / "crash", lambda: START_MS
        with Store.open(path, create=True, config=config, clock=clock) as store:
            due = {"deliver_at_ms": START_MS + HOUR_MS}
            for more in ({"keys": ["k"]}, {"delay_level": 1}, due):
                store.append(Message(topic="t", body=b"x", queue_id=0, **more))
            for number in range(2):
                shutil.copytree(path, f"{path}-{number}")
        for number in range(2):
            copy = Path(f"{path}-{number}")
            reboot()(copy)
            with self.walk("open after a crash", Store.open, copy, clock=clock) as store:
                assert store.max_offset("t", 0) == 1

    def of_a_broker(self):
        """Receive with the protocol of the official clients; counts the broker's threads."""
        from pyrocket import Store
        from support.broker import served
        from support.rocketmq_stub import Stub, queue, resource

        name, walk = "receive, official client", None
        asked = {"group": resource("g"), "message_queue": queue("t"), "batch_size": 32}
        asked |= {"invisible_duration": {"seconds": 60}, "long_polling_timeout": {"seconds": 1}}

        def record(*event):
            if walk is not None and threading.current_thread().name not in OTHER_THREADS:
                walk.record(*event)

        threading.setprofile(record)
        try:
            store = Store.open(self._folder / "broker", create=True)
            store.topics.create("t")
            with served(store) as address, closing(Stub(address)) as stub:
                for _ in range(2):
                    store.append_batch(rows(50), topic="t", first_queue=0)
                    walk = self.found[name] = Walk(self._root)
                    received = stub.call("ReceiveMessage", **asked)
                    walk = None
                    assert sum(one.WhichOneof("content") == "message" for one in received) > 1
        finally:
            threading.setprofile(None)


def reboot():
    """Return a function that simulates a reboot for a store."""
    try:
        from support.stores import reboot
    except ImportError:  # Older checkouts have no tests/support.
        from stores import reboot
    return reboot


def commit(store, message):
    """Store a half message and commit it."""
    from pyrocket import LocalTransactionState

    request, _ = store.transactions.send_half("g", message)
    store.transactions.end(request.half, LocalTransactionState.COMMIT, record=request.record)


def through_spark(value):
    """Return a copy of a value, pickled and unpickled as between driver and worker."""
    return pickle.loads(pickle.dumps(value))


def listed(function, *arguments):
    return list(function(*arguments))


def rows(count, *, text=False):
    import pyarrow as pa

    return pa.record_batch({"body": pa.array(["x"] * count, pa.string() if text else pa.binary())})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--files", metavar="WALK", help="print the files of one walk")
    given = parser.parse_args()
    root = given.root.resolve()
    sys.path[:0] = [str(root / folder) for folder in ("store", "connector", "tests")]
    figures = layout(root)
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="house-", dir=memory) as folder:
        walks = Walks(root, Path(folder)).found
    if given.files:
        lines = sorted(os.path.relpath(file, root) for file in walks[given.files].files)
    elif given.json:
        figures_of_walks = {name: walk.figures for name, walk in walks.items()}
        lines = [json.dumps({"layout": figures, "walks": figures_of_walks}, indent=2)]
    else:
        lines = table(figures, walks)
    sys.stdout.write("\n".join(lines) + "\n")


def table(figures, walks):
    for name, figure in figures.items():
        yield f"{name:<34}{figure:>7,}" if isinstance(figure, int) else f"{name}: {figure}"
    yield f"\n{'walk':<30}" + "".join(f"{name:>10}" for name in Walk.FIGURES)
    for name, walk in walks.items():
        yield f"{name:<30}" + "".join(f"{figure:>10,}" for figure in walk.figures.values())


if __name__ == "__main__":
    main()
