"""The sizes of a store without `store.json` are derived from the majority of its files."""

import json
import shutil
from itertools import product

import pytest
from golden.java import CLEAN, GOLDEN, check_test_topic
from pyrocket import Store, StoreConfig
from pyrocket.errors import StoreDamagedError
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from support.shares import share
from support.stores import SMALL, bodies, filled, log_files, message, queue_files, snapshot

CONFIG = SMALL.with_sizes(log_file_bytes=8192)
LENGTHS = [0, 1000, 2000, 4096, 6000]


@pytest.fixture
def bare(path, clock):
    """A store with several log and queue files, without pyrocket's own files."""
    filled(path, count=150, config=CONFIG, clock=clock).close()
    shutil.rmtree(path / "pyrocket")
    assert len(log_files(path)) == 5
    return path


def truncate(file, length):
    with file.open("r+b") as opened:
        opened.truncate(length)


def saved(path):
    return json.loads((path / "pyrocket" / "store.json").read_bytes())


def open_error(path, **options):
    with pytest.raises(StoreDamagedError) as caught:
        Store.open(path, **options)
    return caught.value


@pytest.mark.parametrize(("number", "length"), share(list(product(range(4), LENGTHS)), 4), ids=str)
def test_a_log_file_of_wrong_length_is_reported_and_no_size_is_stored(bare, number, length):
    """In an earlier version, such a file determined the size if the file system listed it first."""
    file = log_files(bare)[number]
    data = file.read_bytes()
    truncate(file, length)
    for _ in range(2):
        error = open_error(bare)
        assert (error.code, f"{file} has {length} bytes, not 8192") == (
            "STORE_FILE_LENGTH",
            error.message.rstrip("."),
        )
        assert not (bare / "pyrocket" / "store.json").exists()
    found = [finding for finding in verify(bare).findings if finding.code == "LOG_FILE_LENGTH"]
    assert [one.file for one in found] == [f"commitlog/{file.name}"]
    assert not repair(bare).actions
    assert not (bare / "pyrocket" / "store.json").exists()
    file.write_bytes(data)
    assert len(bodies(Store.open(bare, read_only=True))[0]) == 150
    with Store.open(bare) as store:
        assert len(bodies(store)[0]) == 150
    assert saved(bare)["logFileBytes"] == 8192


@pytest.mark.parametrize(
    ("number", "length"), share(list(product([0, 1, 14], [0, 20, 100, 150])), 3), ids=str
)
def test_a_repair_rebuilds_a_queue_file_of_wrong_length_with_the_size_of_the_other_files(
    bare, number, length
):
    file = queue_files(bare)[number]
    truncate(file, length)
    if length or number < 14:  # Empty last files are created again.
        assert str(file) in open_error(bare).message
        assert not (bare / "pyrocket" / "store.json").exists()
    repair(bare)
    assert not verify(bare).findings
    assert {each.stat().st_size for each in queue_files(bare)} == {200}
    assert saved(bare)["queueFileEntries"] == 10
    with Store.open(bare) as store:
        assert len(bodies(store)[0]) == 150


@pytest.mark.parametrize("name", ["00000000000000000000", "00000000000000004096"])
def test_file_names_identify_the_truncated_file_of_a_broker_store(tmp_path, name):
    root = shutil.copytree(GOLDEN / CLEAN, tmp_path / "s")
    file = root / "commitlog" / name
    data = file.read_bytes()
    truncate(file, 1000)
    assert str(file) in open_error(root).message
    file.write_bytes(data)
    with Store.open(root) as store:
        check_test_topic(store)


WRONG = {"logFileBytes": (4096, 8192), "queueFileEntries": (5, 10), "log": (16384, 8192)}


@pytest.mark.parametrize("case", WRONG)
def test_stored_sizes_that_contradict_all_files_are_rejected_with_a_remedy(path, clock, case):
    """An earlier version wrote such a `store.json` for a store with one truncated file."""
    filled(path, count=150, config=CONFIG, clock=clock).close()
    key, (wrong, right) = "logFileBytes" if case == "log" else case, WRONG[case]
    identity = path / "pyrocket" / "store.json"
    identity.write_text(json.dumps({**saved(path), key: wrong}))
    before = snapshot(path / "commitlog")
    for read_only in (True, False):
        error = open_error(path, read_only=read_only)
        assert error.code == "STORE_SIZES"
        assert str(identity) in error.message
        assert f"write {right} there" in error.remedy
    (finding,) = verify(path).findings
    assert (finding.code, finding.file) == ("STORE_SIZES", "pyrocket/store.json")
    assert f"write {right} there" in finding.fix
    assert not repair(path).actions
    assert snapshot(path / "commitlog") == before
    identity.write_text(json.dumps({**saved(path), key: right}))
    assert not verify(path).findings
    with Store.open(path) as store:
        assert len(bodies(store)[0]) == 150


@pytest.fixture
def single(path, clock):
    """A store with one log file, without pyrocket's own files."""
    filled(path, count=30, config=CONFIG, clock=clock).close()
    shutil.rmtree(path / "pyrocket")
    (file,) = log_files(path)
    return file


def test_size_is_derived_from_a_single_intact_file(single, path):
    with Store.open(path) as store:
        assert len(bodies(store)[0]) == 30
    assert saved(path)["logFileBytes"] == 8192


@pytest.mark.parametrize("length", [1, 1000, 4096])
def test_a_single_truncated_file_is_reported(single, path, length):
    """A file of 4096 bytes could be complete, but a message crosses its end."""
    truncate(single, length)
    for read_only in (True, False):
        error = open_error(path, read_only=read_only)
        assert (error.code, str(single) in error.message) == ("STORE_FILE_LENGTH", True)
    (finding,) = verify(path).findings
    assert finding.code == "LOG_FILE_LENGTH"
    assert single.name in finding.what
    assert not repair(path).actions
    assert not (path / "pyrocket" / "store.json").exists()


@pytest.mark.parametrize("length", [1000, 4096])
def test_the_length_of_a_single_truncated_file_is_compared_with_the_configured_size(
    single, path, length
):
    data = single.read_bytes()
    truncate(single, length)
    error = open_error(path, config=CONFIG)
    assert f"{single} has {length} bytes, not 8192" in error.message
    single.write_bytes(data)
    with Store.open(path, config=CONFIG) as store:
        assert len(bodies(store)[0]) == 30


BROKEN = ["", "[]", "{}", '{"uuid": "x"}', '{"messag', '{"messageDelayLevel": "1s 3m"']


def test_corrupt_store_json_is_the_only_finding_and_may_be_deleted(path, clock):
    config = CONFIG.with_sizes(delay_levels="1s 3m")
    with filled(path, count=50, config=config, clock=clock) as store:
        store.append(message(delay_level=2))
    identity = path / "pyrocket" / "store.json"
    for text in [*BROKEN, "[" * 100_000]:
        identity.write_text(text)
        assert open_error(path).code == "STORE_DAMAGED"
        (finding,) = verify(path).findings
        assert (finding.code, finding.file) == ("CONFIG_BROKEN", "pyrocket/store.json")
        assert "remove it" in finding.fix
        assert not repair(path).actions
        assert identity.read_text() == text
    identity.unlink()
    with Store.open(path, config=StoreConfig(delay_levels="1s 3m")) as store:
        assert len(bodies(store)[0]) == 50
    assert not verify(path).findings
