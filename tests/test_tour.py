"""The tour notebook runs, and its committed outputs are correct and equal those of a new run.

After a change of the notebook `PYROCKET_WRITE_TOUR=1 python3 tests -m heavy tests/test_tour.py`
runs it and writes the outputs.
"""

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from pyrocket import Store

TOUR = Path(__file__).resolve().parent.parent / "examples" / "tour.ipynb"
SHOWN_PATH = "/tmp/pyrocket/tour"
CHANGING = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"  # when a message was stored
    r"| *\d+s(?= |<|$)"  # how long ago
    r"|[▁-█]+"  # the rate
    # The view may be drawn before or after its query has ended.
    r"|(?:ended|micro-batch \d+: \d+ rows) \(11 rows in \d+ micro-batches\)",
    re.MULTILINE,
)


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """A kernel with this interpreter, independent of installed kernels."""
    folder = tmp_path / "jupyter" / "kernels" / "python3"
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    text = f'{{"argv": {command}, "display_name": "3", "language": "python"}}'.replace("'", '"')
    (folder / "kernel.json").write_text(text)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
        monkeypatch.setenv(f"JUPYTER_{name}", str(tmp_path / name))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYROCKET_TOUR", str(tmp_path / "store"))
    return tmp_path


def write(book, path):
    """Save the outputs of a run in the committed form, without Spark's standard error."""
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    text = nbformat.writes(book).replace(str(path), SHOWN_PATH)
    TOUR.write_text(text if text.endswith("\n") else f"{text}\n")


def shown(cells, path):
    """Return the output of each cell, without parts that differ from run to run."""
    by_cell = {}
    for cell in cells:
        texts = []
        for output in cell.get("outputs", []):
            if output.get("name") != "stderr":
                data = output.get("data", {})
                texts += [output.get("text", ""), *(data[kind] for kind in sorted(data))]
        text = "".join(texts).replace(str(path), SHOWN_PATH)
        by_cell[cell.id] = CHANGING.sub("…", text)
    return by_cell


def outputs(cells, source, kind="text/html"):
    """Return the output of the cell whose code contains `source`, as one string."""
    (cell,) = [cell for cell in cells if cell.cell_type == "code" and source in cell.source]
    shown = []
    for output in cell.outputs:
        data = output.get("data", {})
        shown.append(data.get(kind) or output.get("text", ""))
    return "\n".join(shown)


def table(html):
    """Return the rows of the HTML table, as lists of the cells' text."""
    lines = re.findall(r"<tr>(.*?)</tr>", html.split("<tbody>")[1])
    return [tuple(re.findall(r"<td[^>]*>(.*?)</td>", line)) for line in lines]


@pytest.mark.spark
@pytest.mark.heavy
@pytest.mark.filterwarnings("default")
def test_the_committed_tour_equals_a_new_run_with_tables_and_a_live_view(
    kernels, checkout_in_children
):
    from nbclient import NotebookClient
    from pyspark_pyrocket import configure

    configure()
    path = os.environ["PYROCKET_TOUR"]
    book = nbformat.read(TOUR, as_version=4)
    committed = shown(book.cells, path)
    NotebookClient(book, timeout=240, resources={"metadata": {"path": str(kernels)}}).execute()
    cells = book.cells
    if os.environ.get("PYROCKET_WRITE_TOUR"):
        write(book, path)
    else:
        assert shown(cells, path) == committed
    with Store.open(path, read_only=True) as store:
        offsets = store.offsets("orders")
        bodies = [store.read("orders", n, 0)[-1].body.decode() for n in offsets]
    # The tour's last message was sent after these tables were shown.
    (topic,) = table(outputs(cells, "notebook.topics"))
    assert topic[:3] == ("orders", "2", "10")
    queues = table(outputs(cells, "notebook.queues"))
    assert [row[:4] for row in queues] == [("0", "0", "5", "5"), ("1", "0", "5", "5")]
    assert (offsets[0].maximum, offsets[1].maximum) == (6, 5)
    peeked = table(outputs(cells, 'peek(path, "orders", 3)'))
    assert [row[:2] for row in peeked] == [("1", "3"), ("0", "4"), ("1", "4")]
    assert peeked[-1][-1].replace("&quot;", '"') == bodies[1]
    lag = table(outputs(cells, '"billing"'))
    assert [row[2:7] for row in lag] == [
        ("broker-a", "0", "5", "5", "0"),
        ("broker-a", "1", "2", "5", "3"),
    ]
    assert table(outputs(cells, "notebook.groups"))[0][:3] == ("billing", "orders", "3")
    assert "\nqueue  offset  stored" in outputs(cells, 'peek(path, "orders", 3)', "text/plain")
    assert re.search(r"\|\s*ann\|\s*5\|", outputs(cells, "groupBy"))
    # The first cell with the view was updated with messages that arrived while the second cell ran.
    for source in ("display_stream", "view.stop()"):
        rows = table(outputs(cells, source))
        assert ("0", "5", bodies[0].replace('"', "&quot;")) == rows[-1]
        assert len(rows) == 5
