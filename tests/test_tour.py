"""The tour notebook runs, and what its cells show is what is in the store."""

import os
import re
import sys
from pathlib import Path

import pytest
from pyrocket import Store

TOUR = Path(__file__).resolve().parent.parent / "examples" / "tour.ipynb"


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """A kernel that is this interpreter, whatever kernels the machine knows."""
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


def outputs(cells, source, kind="text/html"):
    """What the cell whose code has `source` shows, as one text."""
    (cell,) = [cell for cell in cells if cell.cell_type == "code" and source in cell.source]
    shown = []
    for output in cell.outputs:
        data = output.get("data", {})
        shown.append(data.get(kind) or output.get("text", ""))
    return "\n".join(shown)


def table(html):
    """The rows of the HTML's table, as the texts of their cells."""
    lines = re.findall(r"<tr>(.*?)</tr>", html.split("<tbody>")[1])
    return [tuple(re.findall(r"<td[^>]*>(.*?)</td>", line)) for line in lines]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_one_cell_start_rich_html_and_a_live_view(kernels, checkout_in_children):
    import nbformat
    from nbclient import NotebookClient
    from pyspark_pyrocket import configure

    configure()
    book = nbformat.read(TOUR, as_version=4)
    assert not [cell for cell in book.cells if cell.get("outputs")], "commit it without outputs"
    NotebookClient(book, timeout=240, resources={"metadata": {"path": str(kernels)}}).execute()
    cells = book.cells
    with Store.open(os.environ["PYROCKET_TOUR"], read_only=True) as store:
        offsets = store.offsets("orders")
        bodies = [store.read("orders", n, 0)[-1].body.decode() for n in offsets]
    # The tour's last message came after these tables.
    (topic,) = table(outputs(cells, "notebook.topics"))
    assert topic[:3] == ("orders", "2", "10")
    queues = table(outputs(cells, "notebook.queues"))
    assert [row[:4] for row in queues] == [("0", "0", "5", "5"), ("1", "0", "5", "5")]
    assert (offsets[0].maximum, offsets[1].maximum) == (6, 5)
    peeked = table(outputs(cells, 'peek(path, "orders", 3)'))
    assert [row[:2] for row in peeked] == [("1", "3"), ("0", "4"), ("1", "4")]
    assert peeked[-1][-1].replace("&quot;", '"') == bodies[1]
    lag = table(outputs(cells, '"billing"'))
    assert [row[:6] for row in lag] == [
        ("billing", "orders", "0", "5", "5", "0"),
        ("billing", "orders", "1", "2", "5", "3"),
    ]
    assert table(outputs(cells, "notebook.groups"))[0][:3] == ("billing", "orders", "3")
    assert "\nqueue  offset  stored" in outputs(cells, 'peek(path, "orders", 3)', "text/plain")
    assert re.search(r"\|\s*ann\|\s*5\|", outputs(cells, "groupBy"))
    # The first cell of the view was changed by what came while the second one ran.
    for source in ("display_stream", "view.stop()"):
        rows = table(outputs(cells, source))
        assert ("0", "5", bodies[0].replace('"', "&quot;")) == rows[-1]
        assert len(rows) == 5
