"""The table of threads in store/DESIGN.md agrees with the code."""

import ast
import re
from pathlib import Path

from pyrocket.broker.work import Work

ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / "store/pyrocket"
POOLS = {"Thread": "name", "ThreadPoolExecutor": "thread_name_prefix", "__init__": "name"}


def text_of(node):
    """Return a constant or an f-string, whose values become an ellipsis; None for other values."""
    if isinstance(node, ast.JoinedStr):
        return "".join(one.value if isinstance(one, ast.Constant) else "…" for one in node.values)
    return node.value if isinstance(node, ast.Constant) else None


def thread_names(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        named = [one.value for one in node.keywords if one.arg == POOLS.get(called)]
        given = node.args[1:2] if called == "ThreadPoolExecutor" else []
        names = [text_of(one) for one in named + given]
        if called == "Thread":
            assert named, f"{path}:{node.lineno}: a thread without a name"
        yield from (name for name in names if isinstance(name, str))


def test_every_thread_is_in_the_table_of_threads():
    rooms = [
        one
        for one in STORE.rglob("*.py")
        if "client" not in one.parts and re.search(r"Thread|super\(\).__init__", one.read_text())
    ]
    started = {name for path in rooms for name in thread_names(path)}
    started |= {f"pyrocket-{kind.value}" for kind in Work}
    section = (ROOT / "store/DESIGN.md").read_text().split("## Threads\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    assert all(all(cell.strip() for cell in row) for row in rows)
    listed = {name for row in rows for name in re.findall("`([^`]+)`", row[0])}
    assert listed == started
