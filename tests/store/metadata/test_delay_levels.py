"""Delay levels are fixed when a directory is created, and cannot be changed later."""

import json
import shutil
from dataclasses import replace

import pytest
from golden.java import CLEAN, GOLDEN
from pyrocket import Store, StoreConfig
from pyrocket.base.config import DELAY_LEVELS
from pyrocket.errors import OptionError, StoreDamagedError
from support.inner import inner
from support.stores import SMALL, snapshot

SHORT = replace(SMALL, delay_levels="1s 1m 1d")


def levels(store):
    return inner(store).reader.identity.config.delay_levels_text


def identity(path):
    return json.loads((path / "pyrocket" / "store.json").read_bytes())


def test_a_new_store_saves_its_levels(open_store, path):
    open_store(config=SHORT).close()
    assert identity(path)["messageDelayLevel"] == "1s 1m 1d"
    assert levels(open_store()) == "1s 1m 1d"
    assert levels(open_store(read_only=True)) == "1s 1m 1d"


def test_a_new_store_has_the_levels_of_rocketmq_by_default(open_store, path):
    open_store().close()
    assert identity(path)["messageDelayLevel"] == DELAY_LEVELS


@pytest.mark.parametrize("read_only", [True, False])
def test_different_levels_are_rejected_and_equal_levels_accepted(open_store, path, read_only):
    open_store(config=SHORT).close()
    before = identity(path)
    with pytest.raises(OptionError, match="'1s 1m 1d'") as caught:
        open_store(config=replace(SMALL, delay_levels=DELAY_LEVELS), read_only=read_only)
    assert caught.value.code == "DELAY_LEVELS"
    assert identity(path) == before
    open_store(config=replace(SMALL, delay_levels=" 1s  60s 24h"), read_only=read_only)


def test_the_first_writer_sets_the_levels_of_a_broker_store(tmp_path):
    root = shutil.copytree(GOLDEN / CLEAN, tmp_path / "s")
    before = snapshot(root)
    with Store.open(root, read_only=True) as store:
        assert levels(store) == DELAY_LEVELS
    assert snapshot(root) == before
    own = "1s 2s 3s"
    Store.open(root, config=StoreConfig(delay_levels=own)).close()
    with Store.open(root) as store:
        assert levels(store) == own


def test_a_store_of_an_older_version_gets_levels_for_any_index_sizes(open_store, path):
    odd = replace(SMALL, index_slots=7, index_items=9)
    store = open_store(config=odd)
    store.topics.create("t")
    store.close()
    known = identity(path)
    older = {name: value for name, value in known.items() if name != "messageDelayLevel"}
    (path / "pyrocket" / "store.json").write_text(json.dumps(older))
    open_store(config=StoreConfig()).close()
    assert identity(path) == known


@pytest.mark.parametrize("text", ["1x", 18, None])
def test_invalid_levels_in_the_file_are_damage(open_store, path, text):
    open_store().close()
    broken = {**identity(path), "messageDelayLevel": text}
    (path / "pyrocket" / "store.json").write_text(json.dumps(broken))
    if text is None:
        assert levels(open_store(read_only=True)) == DELAY_LEVELS
        return
    with pytest.raises(StoreDamagedError, match=r"store\.json"):
        open_store()
