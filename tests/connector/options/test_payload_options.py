"""The options for bodies, and their valid combinations."""

import pytest
from pyrocket.errors import InvalidInputError, OptionError
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.options.write import WriteOptions


def read(**options):
    return ReadOptions.parse(Request({"path": "/s", "subscribe": "t", **options}, "/"))


def write(**options):
    return WriteOptions.parse(Request({"path": "/s", **options}, "/"))


JSON = {"valueFormat": "json"}


def test_json_bodies_are_read_with_a_schema():
    schema = "id BIGINT, _corrupt_record STRING, s STRUCT<a: INT>"
    payload = read(**JSON, valueSchema=schema, valueColumn="p").payload
    assert (payload.value_format, payload.value_column, payload.mode) == ("json", "p", "PERMISSIVE")
    assert payload.value_schema.simpleString() == "struct<id:bigint,s:struct<a:int>>"
    assert payload.shows_corrupt
    assert not read(**JSON, valueSchema="id BIGINT").payload.shows_corrupt
    renamed = read(**JSON, valueSchema="bad STRING", columnNameOfCorruptRecord="bad").payload
    assert (renamed.value_schema.names, renamed.shows_corrupt) == ([], True)


def test_invalid_text_fails_the_query_by_default():
    assert read(valueFormat="string").payload.mode == "FAILFAST"
    options = {"valueFormat": "string", "mode": "dropMalformed", "badRecordsTopic": "bad"}
    payload = read(**options).payload
    assert (payload.mode, payload.bad_topic) == ("DROPMALFORMED", "bad")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"valueFormat": "avro"}, "'valueFormat' is 'avro'.*binary, string or json"),
        ({"valueSchema": "id INT"}, "'valueSchema' is given, but it needs valueFormat=json"),
        ({"valueColumn": "p"}, "'valueColumn' is given, but it needs valueFormat=json"),
        ({"valueColumn": "p", "valueFormat": "string"}, "needs valueFormat=json"),
        ({"mode": "FAILFAST"}, "'mode' is given, but it needs valueFormat=string or"),
        ({"badRecordsTopic": "bad"}, "'badRecordsTopic' is given, but it needs valueFormat"),
        ({**JSON, "mode": "LENIENT"}, "permissive, dropmalformed or failfast"),
        ({**JSON, "mode": "FAILFAST", "badRecordsTopic": "b"}, "a mode other than FAILFAST"),
        ({"valueFormat": "string", "badRecordsTopic": "b"}, "a mode other than FAILFAST"),
        ({**JSON, "valueColumn": " "}, "Write the name of a column"),
        ({**JSON, "columnNameOfCorruptRecord": ""}, "Write the name of a column"),
        ({**JSON, "valueSchema": "_corrupt_record INT"}, "make it STRING"),
    ],
)
def test_options_that_do_not_apply_to_the_format_are_rejected(options, error):
    with pytest.raises(OptionError, match=error):
        read(**options)


def test_invalid_topic_names_and_ddl_are_rejected():
    with pytest.raises(InvalidInputError, match=r"TOPIC_ILLEGAL"):
        read(**JSON, mode="permissive", badRecordsTopic="a b")
    with pytest.raises(InvalidInputError, match=r"SCHEMA_INVALID.*INTT is not a type"):
        read(**JSON, valueSchema="id INTT")


def test_a_write_encodes_json_or_nothing():
    assert not write(topic="t").encodes_json
    options = write(topic="t", valueFormat="JSON", valueColumn="p")
    assert (options.encodes_json, options.value_column) == (True, "p")
    with pytest.raises(OptionError, match=r"'valueFormat' is 'string'.*Use json"):
        write(topic="t", valueFormat="string")
    with pytest.raises(OptionError, match="'valueColumn' is given, but it needs valueFormat=json"):
        write(topic="t", valueColumn="p")


@pytest.mark.parametrize("view", ["groups", "topics"])
@pytest.mark.parametrize("option", [{"valueFormat": "json"}, {"schemaMode": "kafka"}])
def test_a_view_without_messages_has_no_bodies_to_decode(view, option):
    given = Request({"path": "/s", "view": view, **option}, "/")
    with pytest.raises(OptionError, match=f"view={view}, which has no messages") as info:
        ReadOptions.parse(given)
    assert info.value.code == "OPTION_CONFLICT"
