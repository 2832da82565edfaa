"""The slots and items of index files are saved, because the files do not contain them."""

import json
import shutil
from dataclasses import replace

import pytest
from golden.java import CLEAN, GOLDEN
from pyrocket import Store, StoreConfig
from pyrocket.errors import OptionError, StoreDamagedError
from pyrocket.formats.index_file import Geometry
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from support.inner import inner
from support.stores import SMALL, batch, message, numbered, overwrite, snapshot


@pytest.fixture
def odd(path):
    """A store with five items per slot, without pyrocket's own files."""
    config = replace(SMALL, index_slots=100, index_items=500)
    with Store.open(path, create=True, config=config) as store:
        for number in range(50):
            store.append(message(b"%d" % number, keys=[f"k{number}"]))
    shutil.rmtree(path / "pyrocket")
    return path


@pytest.fixture
def before(odd):
    return snapshot(odd / "index")


def index_sizes(path):
    with Store.open(path, read_only=True) as store:
        config = inner(store).reader.identity.config
    return config.index_slots, config.index_items


def test_index_sizes_of_a_broker_store_are_derived_from_its_files(tmp_path):
    shutil.copytree(GOLDEN / CLEAN, tmp_path / "s")
    assert index_sizes(tmp_path / "s") == (100, 400)
    Store.open(tmp_path / "s").close()
    assert index_sizes(tmp_path / "s") == (100, 400)


def test_index_sizes_other_than_four_items_per_slot_must_be_configured(tmp_path):
    shutil.copytree(GOLDEN / CLEAN, tmp_path / "s")
    (file,) = (tmp_path / "s" / "index").iterdir()
    size = Geometry(100, 300).file_bytes
    file.write_bytes(file.read_bytes()[:size])
    before = snapshot(tmp_path / "s")
    with Store.open(tmp_path / "s", read_only=True) as store:
        assert len(store.read("TopicTest", 0, 0)) == 14
        with pytest.raises(StoreDamagedError, match=file.name) as caught:
            store.lookup.query("TopicTest", "K2")
        assert "index_slots" in caught.value.remedy
    assert snapshot(tmp_path / "s") == before
    with pytest.raises(OptionError) as caught:
        Store.open(tmp_path / "s")
    assert caught.value.code == "INDEX_GEOMETRY"
    config = StoreConfig(index_slots=100, index_items=300)
    with Store.open(tmp_path / "s", config=config):
        pass
    assert index_sizes(tmp_path / "s") == (100, 300)


def test_an_index_of_unknown_sizes_is_not_deleted_or_reported_as_damage(odd, before):
    (finding,) = verify(odd).findings
    assert (finding.code, finding.file) == ("INDEX_GEOMETRY", "index")
    assert "--index-slots" in finding.fix
    assert not repair(odd).actions
    assert snapshot(odd / "index") == before
    wrong = StoreConfig(index_slots=100, index_items=501)
    assert [each.code for each in verify(odd, config=wrong).findings] == ["INDEX_GEOMETRY"]
    assert not repair(odd, config=wrong).actions
    assert snapshot(odd / "index") == before


def test_given_sizes_of_an_index_are_saved_and_used_to_check_it(odd, before):
    config = StoreConfig(index_slots=100, index_items=500)
    report = verify(odd, config=config)
    assert report.ok
    assert [each.code for each in report.findings] == ["INDEX_GEOMETRY"]
    assert len(repair(odd, config=config).actions) == 1
    assert snapshot(odd / "index") == before
    assert not verify(odd).findings
    assert index_sizes(odd) == (100, 500)
    with Store.open(odd) as store:
        assert [each.body for each in store.lookup.query("t", "k3")] == [b"3"]


def test_damage_of_an_index_is_found_with_given_sizes(odd):
    (file,) = (odd / "index").iterdir()
    overwrite(file, bytes(4), 40 + 4 * 100 + 20 * 3)
    config = StoreConfig(index_slots=100, index_items=500)
    assert set(verify(odd, config=config).counts) > {"INDEX_GEOMETRY"}


def test_sizes_are_not_derived_from_one_truncated_index_file(open_store, path):
    store = open_store()
    store.append_batch(batch(numbered(300), 0, keys=[[f"k{n}"] for n in range(300)]), topic="t")
    store.close()
    shutil.rmtree(path / "pyrocket")
    first, *others = sorted((path / "index").iterdir())
    assert len(others) > 1
    with first.open("r+b") as file:
        file.truncate(Geometry(10, 40).file_bytes)
    with Store.open(path, read_only=True) as store:
        config = inner(store).reader.identity.config
    assert (config.index_slots, config.index_items) == (20, 80)


def test_the_sizes_of_a_store_take_precedence_over_the_configuration(open_store, path):
    open_store().close()
    store = open_store(config=replace(SMALL, index_slots=5, index_items=7))
    store.append(message(keys=["k"]))
    store.close()
    (file,) = (path / "index").iterdir()
    assert file.stat().st_size == Geometry(20, 80).file_bytes
    assert index_sizes(path) == (20, 80)


def test_index_sizes_of_a_store_of_an_older_version_are_saved_by_its_next_writer(open_store, path):
    open_store().close()
    identity = path / "pyrocket" / "store.json"
    known = json.loads(identity.read_bytes())
    old = {name: value for name, value in known.items() if not name.startswith("index")}
    assert len(old) == len(known) - 2
    identity.write_text(json.dumps(old))
    assert index_sizes(path) == (5_000_000, 20_000_000), "readers use the default sizes"
    open_store(config=replace(SMALL, index_slots=7, index_items=9)).close()
    assert json.loads(identity.read_bytes()) == {**known, "indexSlots": 7, "indexItems": 9}
    store = open_store()
    store.append(message(keys=["k"]))
    store.close()
    (file,) = (path / "index").iterdir()
    assert file.stat().st_size == Geometry(7, 9).file_bytes
