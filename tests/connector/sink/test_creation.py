"""A write creates the store and its topic if they are missing, with the given permissions."""

import os
import shlex
import stat

import pytest
from click.testing import CliRunner
from pyrocket import Retention, Store
from pyrocket.errors import OptionError, StoreNotFoundError
from pyrocket.tools.cli import main
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.sink.prepare import prepare_sink

SCHEMA = StructType([StructField("body", BinaryType())])


def prepare(path, **options):
    request = Request({"path": str(path), "topic": "t", **options}, "/")
    return prepare_sink(request, SCHEMA, False)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def strict_umask():
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.parametrize("text", ["2770", "0o2770", " 02770 "])
def test_a_new_store_is_group_writable_if_the_option_is_set(tmp_path, strict_umask, text):
    prepare(tmp_path / "s", directoryMode=text)
    assert mode(tmp_path / "s") == 0o2770
    assert mode(tmp_path / "s" / "config") == 0o2770
    assert mode(tmp_path / "s" / "config" / "topics.json") == 0o660


def test_without_the_option_the_umask_determines_the_mode(tmp_path, strict_umask):
    prepare(tmp_path / "s")
    assert mode(tmp_path / "s") == 0o700


def test_an_existing_store_keeps_its_mode(tmp_path, strict_umask):
    prepare(tmp_path / "s")
    prepare(tmp_path / "s", directoryMode="2770")
    assert mode(tmp_path / "s") == 0o700


@pytest.mark.parametrize("text", ["", "770x", "rwxrwx---", "077", "1770", "99"])
def test_an_invalid_mode_is_rejected_and_creates_nothing(tmp_path, text):
    with pytest.raises(OptionError, match=r"'directoryMode' is .*octal permissions"):
        prepare(tmp_path / "s", directoryMode=text)
    assert not (tmp_path / "s").exists()


def test_a_mode_without_creation_is_a_conflict(tmp_path):
    with pytest.raises(OptionError, match="creates nothing"):
        prepare(tmp_path / "s", directoryMode="2770", createIfMissing="false")


def test_a_write_with_create_if_missing_false_creates_no_store(tmp_path):
    with pytest.raises(StoreNotFoundError):
        prepare(tmp_path / "s", createIfMissing="false")
    assert not (tmp_path / "s").exists()


def prepare_stream(path, **options):
    request = Request({"path": str(path), "topic": "t", **options}, "/")
    return prepare_sink(request, SCHEMA, False, streaming=True)


RETENTION = {"retentionHours": "72", "retentionBytes": "100g", "cleanTime": "4;16"}


def retention_of(path):
    with Store.open(path, read_only=True) as store:
        return store.retention


def test_a_new_store_saves_its_retention_in_the_directory(tmp_path):
    prepare(tmp_path / "s", **RETENTION)
    kept = Retention(hours=72, total_bytes=100 << 30, at_hours=(4, 16))
    assert retention_of(tmp_path / "s") == kept
    prepare(tmp_path / "s", **RETENTION)
    prepare(tmp_path / "s", retentionHours="72")
    prepare(tmp_path / "s")
    assert retention_of(tmp_path / "s") == kept


def test_retention_by_bytes_alone_deletes_nothing_by_age(tmp_path):
    prepare(tmp_path / "s", retentionBytes="1g")
    assert retention_of(tmp_path / "s") == Retention(hours=None, total_bytes=1 << 30)


def test_the_first_micro_batch_of_a_stream_sets_the_retention(tmp_path):
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").touch()
    prepare_stream(tmp_path / "s", checkpointLocation=str(tmp_path / "checkpoint"), **RETENTION)
    assert retention_of(tmp_path / "s").hours == 72


@pytest.mark.parametrize("before", [{}, {"retentionHours": "48"}], ids=["all kept", "48 hours"])
@pytest.mark.parametrize("prepare_again", [prepare, prepare_stream])
def test_a_different_retention_is_rejected_with_the_command_that_sets_it(
    tmp_path, before, prepare_again
):
    path = tmp_path / "it's"
    prepare(path, **before)
    kept = retention_of(path)
    with pytest.raises(OptionError) as refused:
        prepare_again(path, **RETENTION, directoryMode="700")
    assert refused.value.code == "RETENTION_DIFFERS"
    line = refused.value.remedy.partition("run: ")[2]
    assert retention_of(path) == kept
    done = CliRunner().invoke(main, shlex.split(line)[1:])
    assert done.exit_code == 0
    prepare_again(path, **RETENTION)


@pytest.mark.parametrize(
    ("before", "described"),
    [
        ({}, "keeps all messages: the option"),
        ({"retentionHours": "48"}, "has retentionHours=48, cleanTime=4: the option"),
        ({"retentionBytes": "1000"}, "has retentionBytes=1000, cleanTime=4: the option"),
    ],
)
def test_the_error_for_a_different_retention_describes_the_existing_one(
    tmp_path, before, described
):
    prepare(tmp_path / "s", **before)
    with pytest.raises(OptionError) as refused:
        prepare(tmp_path / "s", **RETENTION)
    assert described in refused.value.message


def test_changing_the_retention_does_not_end_a_running_stream(tmp_path):
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    options = {"checkpointLocation": str(tmp_path / "checkpoint"), **RETENTION}
    (offsets / "0").touch()
    sink = prepare_stream(tmp_path / "s", **options)
    sink.checkpoint.record(sink.store)
    with Store.open(tmp_path / "s") as store:
        store.set_retention(None)
    (offsets / "1").touch()
    assert prepare_stream(tmp_path / "s", **options).store == sink.store


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"retentionHours": "0"}, "OPTION_INVALID"),
        ({"retentionHours": "3d"}, "OPTION_INVALID"),
        ({"retentionBytes": "much"}, "OPTION_INVALID"),
        ({"retentionHours": "72", "cleanTime": "24"}, "OPTION_INVALID"),
        ({"retentionHours": "72", "cleanTime": ""}, "OPTION_INVALID"),
        ({"cleanTime": "4"}, "OPTION_MISSING"),
        ({"retentionBytes": "1g", "cleanTime": "4"}, "OPTION_MISSING"),
        ({"retentionHours": "72", "createIfMissing": "false"}, "OPTION_CONFLICT"),
    ],
)
def test_an_invalid_retention_is_rejected_and_creates_nothing(tmp_path, options, code):
    with pytest.raises(OptionError) as refused:
        prepare(tmp_path / "s", **options)
    assert refused.value.code == code
    assert not (tmp_path / "s").exists()
