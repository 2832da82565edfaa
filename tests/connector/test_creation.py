"""What a write makes that is not there: the store, its topic, and for whom."""

import os
import stat

import pytest
from pyrocket.errors import OptionError, StoreNotFoundError
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.writing.sink import prepare_sink

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
def test_a_store_that_a_write_makes_is_the_groups_where_the_option_says_so(
    tmp_path, strict_umask, text
):
    prepare(tmp_path / "s", directoryMode=text)
    assert mode(tmp_path / "s") == 0o2770
    assert mode(tmp_path / "s" / "config") == 0o2770
    assert mode(tmp_path / "s" / "config" / "topics.json") == 0o660


def test_without_the_option_the_umask_decides(tmp_path, strict_umask):
    prepare(tmp_path / "s")
    assert mode(tmp_path / "s") == 0o700


def test_a_store_that_is_there_keeps_its_mode(tmp_path, strict_umask):
    prepare(tmp_path / "s")
    prepare(tmp_path / "s", directoryMode="2770")
    assert mode(tmp_path / "s") == 0o700


@pytest.mark.parametrize("text", ["", "770x", "rwxrwx---", "077", "1770", "99"])
def test_what_is_no_mode_for_a_store_is_refused_and_makes_nothing(tmp_path, text):
    with pytest.raises(OptionError, match=r"'directoryMode' is .*octal permissions"):
        prepare(tmp_path / "s", directoryMode=text)
    assert not (tmp_path / "s").exists()


def test_a_mode_for_what_is_not_made_is_a_conflict(tmp_path):
    with pytest.raises(OptionError, match="creates nothing"):
        prepare(tmp_path / "s", directoryMode="2770", createIfMissing="false")


def test_with_create_if_missing_false_a_write_makes_no_store(tmp_path):
    with pytest.raises(StoreNotFoundError):
        prepare(tmp_path / "s", createIfMissing="false")
    assert not (tmp_path / "s").exists()
