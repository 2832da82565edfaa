"""Lists the public surface, from the code: everything that users, their files and their scripts
rely on.

    python tests/surface.py --write     accepts a change, and settles a merge conflict in the lists

`tests/golden/surface` contains one list for each kind of name. The list of Python names contains
only modules that users import.
"""

import ast
import importlib
import re
import sys
from collections import defaultdict
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "surface"
FOLDERS = {"pyrocket": ROOT / "store", "pyspark_pyrocket": ROOT / "connector"}
PUBLIC = (
    *(
        "pyrocket",
        "pyrocket.client",
        "pyrocket.tools.notebook",
        "pyrocket.tools.pytest_plugin",
        "pyrocket.testing",
    ),
    "pyspark_pyrocket",
)
CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
MARK = re.compile(r"(pytest\.|cached_|lazy_)?(fixture|property)|classmethod|staticmethod|dataclass")
DEFAULT = " by default"
LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")


@cache
def trees():
    """Return module → its syntax tree, of both packages."""
    found = {}
    for package, root in FOLDERS.items():
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(path.read_text())
            stub = path.with_suffix(".pyi")
            if stub.name == "__init__.pyi" and stub.exists():
                found[name].body += ast.parse(stub.read_text()).body
    return found


@cache
def every_node():
    """Return package → kind of node → the nodes."""
    found = {package: defaultdict(list) for package in FOLDERS}
    for module, tree in trees().items():
        for node in ast.walk(tree):
            found[module.split(".")[0]][type(node)].append(node)
    return found


def nodes(kind, *packages):
    return [node for each in packages or FOLDERS for node in every_node()[each][kind]]


@cache
def constants():
    """Return NAME → the strings that modules assign to it."""
    found = defaultdict(set)
    for node in nodes(ast.Assign):
        name = ast.unparse(node.targets[0])
        if name.isupper() and isinstance(node.value, ast.Constant):
            found[name] |= texts(node.value)
    return found


def texts(node):
    """Return the possible strings of an expression, with `<*>` for variable parts."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    if isinstance(node, ast.IfExp):
        return texts(node.body) | texts(node.orelse)
    if isinstance(node, ast.JoinedStr):
        return {"".join("".join(texts(part)) or "<*>" for part in node.values)}
    return constants().get(getattr(node, "id", ""), set())


# Python names


def definition(module, name):
    """Return the module and the node that define a module's name, following imports."""
    for node in trees()[module].body:
        if name in (getattr(node, "name", ""), *map(ast.unparse, getattr(node, "targets", ()))):
            return module, node
    for node in ast.walk(trees()[module]):
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            if (alias.asname or alias.name) == name and node.module in trees():
                return definition(node.module, alias.name)
    return module, None


def offered(module):
    """Return the names of `__all__`, or if it is missing, the names defined without a leading
    underscore.
    """
    targets = [part for node in trees()[module].body for part in getattr(node, "targets", ())]
    if any("__all__" in ast.unparse(target) for target in targets):
        return importlib.import_module(module).__all__
    defined = (getattr(node, "name", "_") for node in trees()[module].body)
    return [name for name in defined if not name.startswith("_")]


def members(module, node):
    """Return module and node of each field and method of a class and its bases in the product."""
    for each in node.body:
        name = getattr(each, "name", "") or ast.unparse(each)
        if not isinstance(each, ast.AnnAssign | ast.Assign | ast.FunctionDef):
            continue
        if not name.startswith("_") or name in ("__init__", "__call__"):
            yield module, each
    for base in node.bases:
        where, found = definition(module, ast.unparse(base))
        if isinstance(found, ast.ClassDef):
            yield from members(where, found)


def returned(places):
    """Return name → module and node of the classes that methods of these classes return,
    recursively.
    """
    found, waiting = {}, list(places)
    while waiting:
        module, node = waiting.pop()
        parts = members(module, node) if isinstance(node, ast.ClassDef) else [(module, node)]
        for where, part in parts:
            gives = None if "@pytest" in line(part) else getattr(part, "returns", None)
            for word in re.findall(r"\w+", ast.unparse(gives) if gives else ""):
                place = definition(where, word)
                if word not in found and isinstance(place[1], ast.ClassDef):
                    found[word] = place
                    waiting.append(place)
    return found


def line(node):
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        # Python 3.10 puts a space between `lambda` and its colon.
        return ast.unparse(node).replace("lambda :", "lambda:") if node else ""
    marks = "".join(
        f"@{mark} " for mark in map(ast.unparse, node.decorator_list) if MARK.match(mark)
    )
    marks = marks.replace("@cached_property", "@property")
    if isinstance(node, ast.ClassDef):
        return f"{marks}class ({', '.join(map(ast.unparse, node.bases))})"
    gives = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{marks}({ast.unparse(node.args)}){gives}"


def python():
    """List the public names of modules, then the classes that functions return; fields are in the
    order of their definition.
    """
    sections = {each: {n: definition(each, n) for n in offered(each)} for each in PUBLIC}
    found = {name: place for section in sections.values() for name, place in section.items()}
    made = returned(found.values())
    sections["returned by these"] = {n: place for n, place in made.items() if n not in found}
    for title, names in sections.items():
        yield f"\n# {title}"
        for name, (module, node) in sorted(names.items()):
            yield line(node) if isinstance(node, ast.Assign) else f"{name} {line(node)}".strip()
            inside = members(module, node) if isinstance(node, ast.ClassDef) else ()
            methods = []
            for _, part in inside:
                if not isinstance(part, ast.FunctionDef):
                    yield f"    {line(part)}"
                elif part.name != "__init__" or name not in made:
                    methods.append(f"    {part.name} {line(part)}")
            yield from sorted(methods)


def logs():
    for package in FOLDERS:
        yield f"\n# {package}"
        lines = []
        for call in nodes(ast.Call, package):
            on, _, level = ast.unparse(call.func).rpartition(".")
            if on.strip("_").lower() in ("log", "logger", "logging") and level in LEVELS:
                said = texts(call.args[level == "log"]) or {"(a text made elsewhere)"}
                lines += [f"{'(a level)' if level == 'log' else level}: {text}" for text in said]
        yield from sorted(lines)


# Files, options and other names that exist outside a process


def options():
    """List each option with its queries and possible values."""
    from pyspark_pyrocket.options.option import BATCH, STREAM, OptionReader
    from pyspark_pyrocket.options.read import ReadOptions
    from pyspark_pyrocket.options.table import TABLE
    from pyspark_pyrocket.options.target import Request
    from pyspark_pyrocket.options.write import WriteOptions

    json = {"valueFormat": "json"}
    strategy = {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "error"}
    transaction = {"txnAppId": "a", "txnVersion": "1"}
    asked = {}
    read = OptionReader.read

    def spy(given, option, kind=None):
        asked.setdefault(option.name, set()).add((kind or option.kind).values)
        return read(given, option, kind)

    with patch.object(OptionReader, "read", spy):
        for more in ({}, json, strategy, transaction):
            request = Request({"path": "/s", "topic": "t", **more}, "/")
            if more is not transaction:
                ReadOptions.parse(request, BATCH), ReadOptions.parse(request, STREAM)
            if more is not strategy:
                WriteOptions.parse(request)
    for option in sorted(TABLE, key=lambda option: option.name):
        values = "; or ".join(sorted(asked.get(option.name, {"text"})))
        yield f"{option.name}: {', '.join(option.queries)}; default {option.default}; {values}"


def columns():
    from pyrocket import PENDING_COLUMNS, SCAN_COLUMNS, SEND_COLUMNS, VIEW_COLUMNS
    from pyspark_pyrocket.columns.kafka import KAFKA_COLUMNS
    from pyspark_pyrocket.columns.messages import COLUMNS, KAFKA_DEFAULT, ROCKETMQ_DEFAULT
    from pyspark_pyrocket.columns.views import columns_besides, table_schema
    from pyspark_pyrocket.options.selection import TABLES, VIEWS
    from pyspark_pyrocket.sink.columns import _SENT

    def spark(types):
        return " or ".join(each.simpleString() for each in types)

    tables = {
        "reads": {n: spark(v.spark_type for v in each) for n, each in COLUMNS.items()},
        "reads by default, in order": dict.fromkeys(ROCKETMQ_DEFAULT, ""),
        "schemaMode=kafka": {n: spark(v.spark_type for v in e) for n, e in KAFKA_COLUMNS.items()},
        "schemaMode=kafka by default, in order": dict.fromkeys(KAFKA_DEFAULT, ""),
        "writes": {n: f"{spark(types)} as {sent}" for n, (sent, types) in _SENT.items()},
        "SCAN_COLUMNS": SCAN_COLUMNS,
        "PENDING_COLUMNS": PENDING_COLUMNS,
        "SEND_COLUMNS": {n: " or ".join(map(str, types)) for n, types in SEND_COLUMNS.items()},
    }
    for view in VIEWS:
        shown = table_schema(view) if view in TABLES else columns_besides(view)
        tables[f"view={view}, in order"] = {each.name: spark([each.dataType]) for each in shown}
    for view, table in VIEW_COLUMNS.items():
        tables[f"VIEW_COLUMNS[{view!r}]"] = table
    for title, table in tables.items():
        yield f"\n# {title}"
        yield from (f"{name}: {kind}" if kind else name for name, kind in table.items())


def given_codes(call, helpers):
    """Return the codes that a call passes, with the error class, or "a finding"."""
    called = getattr(call.func, "attr", getattr(call.func, "id", ""))
    at, kind = helpers.get(called, (None, called if called.endswith("Error") else ""))
    if called == "add" and len(call.args) > 4:
        at, kind = 0, "a finding"
    given = [word.value for word in call.keywords if word.arg == "code"]
    given += [] if at is None else call.args[at : at + 1]
    return [(value, kind) for value in given if kind]


@cache
def error_codes():
    """Return code → its error classes, and "a finding"; the code may be passed to a helper."""
    found, helpers = {}, {}
    calls = [
        (function, call)
        for kind in (ast.FunctionDef, ast.AsyncFunctionDef)
        for function in nodes(kind)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
    ]
    for function, call in calls * 3:  # Helpers pass their code on to others.
        for value, kind in given_codes(call, helpers):
            for code in filter(CODE.fullmatch, texts(value)):
                found.setdefault(code, set()).add(kind)
            if getattr(value, "id", "") == "code":
                takes = [each.arg for each in function.args.args if each.arg != "self"]
                helpers[function.name] = takes.index("code") if "code" in takes else None, kind
    for node in nodes(ast.ClassDef):
        for each in node.body:
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "default_code":
                found.setdefault(each.value.value, set()).add(f"{node.name}{DEFAULT}")
    return found


def codes():
    yield "# errors and findings"
    known = error_codes()
    yield from (f"{code}: {', '.join(sorted(kinds))}" for code, kinds in sorted(known.items()))
    yield "\n# other words in capitals: codes found by a rule, RocketMQ's properties and statuses"
    words = {node.value for node in nodes(ast.Constant) if isinstance(node.value, str)}
    words -= {*known, *chain.from_iterable(map(offered, PUBLIC))}
    yield from sorted(filter(CODE.fullmatch, words))


def commands():
    import click
    from pyrocket.tools.cli import main
    from pyrocket.tools.cli.frame import FAILED, FOUND, INTERRUPTED, OK, PIPE_CLOSED
    from pyrocket.tools.session import ENVIRONMENT

    def described(param):
        info, names = param.type.to_info_dict(), "/".join([*param.opts, *param.secondary_opts])
        is_argument = isinstance(param, click.Argument)
        yield f"{names.upper() if is_argument else names}: {info['param_type']}"
        yield from (
            f"{key} {info[key]}" for key in ("choices", "min", "max") if info.get(key) is not None
        )
        if param.default and isinstance(param.default, str | int | float):
            yield f"default {param.default}"
        yield from (word for word in ("required", "multiple") if getattr(param, word, False))
        yield from ([f"${param.envvar}"] if param.envvar else [])

    def walk(command, path, context):
        yield path
        lines = ["    " + "; ".join(described(param)) for param in command.params]
        yield from sorted(lines, key=lambda line: line.strip() if line.strip()[0] == "-" else "")
        for name in command.list_commands(context) if isinstance(command, click.Group) else ():
            yield from walk(command.get_command(context, name), f"{path} {name}", context)

    yield from walk(main, "pyrocket", click.Context(main))
    yield f"\n# exit codes\n{OK} {FOUND} {FAILED} {INTERRUPTED} {PIPE_CLOSED}"
    yield "\n# environment"
    gets = [c.args[0] for c in nodes(ast.Call) if ast.unparse(c.func) == "os.environ.get"]
    gets += [s.slice for s in nodes(ast.Subscript) if ast.unparse(s.value) == "os.environ"]
    yield from sorted({text for node in gets for text in texts(node)} | {*ENVIRONMENT.values()})


def files():
    """List the paths of the layout, with `<*>` for variable parts, and other file names."""
    from pyrocket.base.versions import HINTS, VERSIONS
    from pyrocket.disk.layout import Layout

    layout, paths = Layout(Path("/store")), set()
    for name, member in vars(Layout).items():
        if isinstance(member, property | cached_property):
            paths.add(getattr(layout, name))
        elif callable(member) and not name.startswith("_"):
            paths.add(getattr(layout, name)(*["<*>"] * (member.__code__.co_argcount - 1)))
    paths = {path.relative_to(layout.root) for path in paths if isinstance(path, Path)}
    yield "# paths"
    yield from sorted(map(str, paths))
    yield "\n# versions"
    yield from (f"{n}: {v}{', a hint' * (n in HINTS)}" for n, v in sorted(VERSIONS.items()))
    yield "\n# parts of other paths, and RocketMQ's tables"
    given = [node.right for node in nodes(ast.BinOp) if isinstance(node.op, ast.Div)]
    given += [call.args[1] for call in nodes(ast.Call) if ast.unparse(call.func) == "JsonTable"]
    parts = {text for node in given for text in texts(node)}
    yield from sorted(parts - {part for path in paths for part in path.parts})


def metrics():
    from pyspark_pyrocket.tools.lag.metrics import LagMetrics

    with patch(f"{LagMetrics.__module__}.Gauge") as gauge:
        LagMetrics(None)
    for name, _, labels in sorted(call.args for call in gauge.call_args_list):
        yield f"{name}: {', '.join(labels)}"


OUTLIVING = (options, columns, codes, commands, files, metrics)
KINDS = (*OUTLIVING, python, logs)


def listed(kind):
    return "\n".join(kind()).strip() + "\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    sys.path[:0] = map(str, FOLDERS.values())
    GOLDEN.mkdir(exist_ok=True)
    for each in KINDS:
        (GOLDEN / f"{each.__name__}.txt").write_text(listed(each))
