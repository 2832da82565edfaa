"""Files of a later release are reported before any change, or ignored if they are optional."""

import re
import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest
from pyrocket import Message, Store
from pyrocket.base.versions import HINTS, RELEASE, VERSIONS, check_version
from pyrocket.errors import StoreDamagedError, UnsupportedError
from pyrocket.formats import checked_json
from pyrocket.formats.checked_json import encode_own
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from support.stores import FakeClock, message, snapshot, words

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/stores/de38b47/clean"
LATER = "8.1.0"
FORMAT_WORD, WRITTEN_BY_WORD = 0, 511
OPENINGS = [lambda path: Store.open(path, read_only=True), Store.open, verify, repair]
IN_FOLDERS = {
    "empty.json": f"sink/{'0' * 32}",
    "unclean.json": "sink/unclean.json",
    "broker.json": "broker.json",
    "role.json": "role.json",
    "retention.json": "retention.json",
    "pop.json": "pop.json",
    "locks.json": "locks.json",
    "group_starts.json": "group_starts.json",
}
"""Files that the golden store lacks, with their paths below `pyrocket/`."""

NEEDED = sorted(VERSIONS.keys() - HINTS)


@pytest.fixture
def root(tmp_path):
    """A closed store with all of pyrocket's files that have a version."""
    path = shutil.copytree(GOLDEN, tmp_path / "store")
    names = {one.name for one in (path / "pyrocket").iterdir()}
    assert names | IN_FOLDERS.keys() >= VERSIONS.keys()
    return path


@pytest.fixture
def make_later(root, monkeypatch):
    """Changes a file to look as if a later release had written it."""

    def make(name):
        file = root / "pyrocket" / IN_FOLDERS.get(name, name)
        file.parent.mkdir(exist_ok=True)
        if name == "state":
            page = words(root)
            page[FORMAT_WORD] = 0x7079726F_00000009
            page[WRITTEN_BY_WORD] = 9 << 48 | 8 << 32 | 1 << 16
            page.close()
        elif name == "store.json":
            file.write_text(f'{{"version": 9, "release": "{LATER}", "id": 1}}')
        else:
            with monkeypatch.context() as later:
                later.setitem(VERSIONS, name, 9)
                later.setattr(checked_json, "RELEASE", LATER)
                file.write_bytes(encode_own(file.with_name(name), {"unknown": {"x": 1}}))

    return make


@pytest.mark.parametrize("name", NEEDED)
def test_a_file_of_a_later_release_is_rejected_and_nothing_is_changed(root, make_later, name):
    make_later(name)
    before = snapshot(root)
    for opening in OPENINGS:
        with pytest.raises(UnsupportedError, match="STORE_NEWER") as refused:
            opening(root)
        text = str(refused.value)
        assert str(root / "pyrocket" / name) in text
        assert f"written by pyrocket {LATER}" in text
        assert f"Open the store with pyrocket {LATER} or later" in text
        assert snapshot(root) == before


@pytest.mark.parametrize("name", sorted(HINTS))
def test_an_optional_file_of_a_later_release_is_ignored(root, make_later, name):
    with Store.open(root, read_only=True) as store:
        before = store.offsets("orders")
    make_later(name)
    for read_only in (True, False):
        with Store.open(root, read_only=read_only, clock=FakeClock()) as store:
            assert store.offsets("orders") == before
            assert len(store.read("orders", 0, before[0].minimum)) > 10


def test_an_open_store_rejects_a_file_written_later_by_a_newer_release(root, make_later):
    with Store.open(root, read_only=True) as store:
        assert "orders" in store.topics.all()
        make_later("topics.json")
        with pytest.raises(UnsupportedError, match="STORE_NEWER"):
            store.topics.all()


@pytest.mark.parametrize("word", [FORMAT_WORD, WRITTEN_BY_WORD])
def test_a_damaged_field_of_the_state_is_not_reported_as_a_later_release(root, word):
    page = words(root)
    page[word] ^= 1
    page.close()
    with Store.open(root, clock=FakeClock()) as store:
        assert store.append(Message(topic="orders", body=b"x")).topic == "orders"


def test_files_of_this_release_contain_version_and_release(tmp_path):
    with Store.open(tmp_path / "s", create=True, clock=FakeClock()) as store:
        store.append(message(b"x"))
    own = tmp_path / "s" / "pyrocket"
    for name in ("store.json", "topics.json", "ends.json", "cursors.json"):
        if (own / name).exists():
            assert f'"release": "{RELEASE}"' in (own / name).read_text()
            assert f'"version": {VERSIONS[name]}' in (own / name).read_text()
    page = words(tmp_path / "s")
    assert page[WRITTEN_BY_WORD] >> 48 == VERSIONS["state"] == page[FORMAT_WORD] & 0xFFFF
    page.close()


@pytest.mark.parametrize("version", [0, -1, "2", None, 1.5, [1]])
def test_an_invalid_version_is_reported_as_damage(root, monkeypatch, version):
    with pytest.raises(ValueError, match="is not a version"):
        check_version(Path("topics.json"), version)
    monkeypatch.setitem(VERSIONS, "topics.json", version)
    file = root / "pyrocket" / "topics.json"
    file.write_bytes(encode_own(file, {"ids": {}}))
    with Store.open(root, read_only=True) as store:
        monkeypatch.undo()
        with pytest.raises(StoreDamagedError, match=re.escape("topics.json")):
            store.topics.all()


def test_the_release_equals_the_version_of_the_package():
    assert f'version="{RELEASE}"' in (ROOT / "setup.py").read_text()


def test_the_page_of_formats_lists_the_versions_of_every_own_file():
    page = (ROOT / "store/FORMAT.md").read_text().partition("## Versions")[2].partition("\n## ")[0]
    rows = {
        (pattern, int(version))
        for line in page.splitlines()
        for names, version in re.findall(r"^\| ([^|]*) \| (\d+) ", line)
        for pattern in re.findall("`([^`]+)`", names)
    }
    for name, version in VERSIONS.items():
        assert {found for pattern, found in rows if pattern == name} == set(range(1, version + 1))
    patterns = {pattern for pattern, _ in rows}
    for store in (GOLDEN, GOLDEN.with_name("unclean")):
        for file in (store / "pyrocket").rglob("*"):
            name = str(file.relative_to(store / "pyrocket"))
            assert file.is_dir() or any(fnmatch(name, each) for each in patterns), name
