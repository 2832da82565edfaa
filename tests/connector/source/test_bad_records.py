"""Each bad record is sent once, even if it is read again, and never to the topic it is from."""

import pytest
from pyrocket.errors import OptionError, StoreNotSharedError
from pyspark_pyrocket.json.decode import BadRecord
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source.bad_records import prepare_bad_records, sender
from pyspark_pyrocket.source.task import Columns
from pyspark_pyrocket.transport.path import PathTarget, forget

KEYS_AT = Columns(("keysText",)).of_locations


def records(*offsets, reason="r"):
    return [BadRecord("t", 0, at, b"body %d" % at, reason) for at in offsets]


def options(box, topic="bad", **more):
    given = {"path": box.path, "subscribe": box.topic, "valueFormat": "json", **more}
    return ReadOptions.parse(Request({**given, "badRecordsTopic": topic}, "/"))


@pytest.fixture
def bad(box):
    """The function that sends bad records to an existing topic."""
    box.create(queues=1)
    prepare_bad_records(PathTarget(box.path), options(box))
    box.topic = "bad"
    yield sender(PathTarget(box.path).open_source().target, "bad", KEYS_AT)
    forget(box.path)


def test_a_bad_record_carries_its_origin_and_the_reason(box, bad):
    bad(records(7, reason="it is\x01 odd\n" + "x" * 9999))
    ((body, keys, properties),) = box.read("body", "keysText", "properties")
    assert (body, keys) == (b"body 7", "t/0/7")
    found = dict(properties)
    assert found.pop("reason").startswith("it is? odd?xxx")
    assert found == {"originTopic": "t", "originQueueId": "0", "originQueueOffset": "7"}


def test_an_existing_bad_record_is_not_sent_again(box, bad):
    bad(records(1, 2))
    bad(records(1, 2, 3))
    bad(records(3))
    assert box.bodies() == [b"body 1", b"body 2", b"body 3"]


def test_bad_records_that_are_read_again_are_looked_up_together(box, bad, monkeypatch):
    """A look-up of each would take minutes for a topic with a hundred thousand of them."""
    bad(records(1, 2, 3))
    source = PathTarget(box.path).open_source()
    look_ups, locate = [], type(source).locate
    monkeypatch.setattr(
        type(source), "locate", lambda *given: look_ups.append(given) or locate(*given)
    )
    bad(records(1, 2, 3, 4))
    assert len(look_ups) == 1
    assert box.bodies() == [b"body %d" % at for at in (1, 2, 3, 4)]


def test_a_task_that_finds_another_store_sends_no_bad_records(box, bad):
    with pytest.raises(StoreNotSharedError):
        sender(PathTarget(box.path, "another"), "bad", KEYS_AT)(records(1))
    assert box.rows() == 0


def test_without_the_option_no_bad_records_are_sent():
    assert sender(PathTarget("/s", "uuid"), "", KEYS_AT) is None


@pytest.mark.parametrize("more", [{}, {"subscribe": "a,t"}])
def test_bad_records_cannot_be_sent_to_a_topic_that_is_read(box, more):
    box.create()
    with pytest.raises(OptionError, match="which this query reads") as info:
        prepare_bad_records(PathTarget(box.path), options(box, "t", **more))
    assert info.value.code == "OPTION_CONFLICT"


def test_a_pattern_must_not_cover_the_topic_of_bad_records(box):
    box.create()
    given = {"path": box.path, "subscribePattern": "t|bad.*", "valueFormat": "json"}
    request = Request({**given, "badRecordsTopic": "bad1"}, "/")
    with pytest.raises(OptionError, match="which this query reads"):
        prepare_bad_records(PathTarget(box.path), ReadOptions.parse(request))


def test_a_topic_for_bad_records_is_rejected_for_views(box):
    box.create()
    with pytest.raises(OptionError, match="view=scheduled"):
        prepare_bad_records(PathTarget(box.path), options(box, view="scheduled"))
