"""A user property cannot imitate another field."""

import pytest
from pyrocket import Message, Store
from pyrocket.errors import MessageError


@pytest.mark.parametrize("name", ["tags", "sharding key"])
def test_a_property_with_the_name_of_a_message_field_may_not_contain_separators(tmp_path, name):
    evil = {name: "v\x02KEYS\x01evil"}
    with Store.open(tmp_path / "store", create=True) as store:
        store.topics.create("T")
        with pytest.raises(MessageError):
            store.append(Message(topic="T", body=b"x", tags="A", sharding_key="s", properties=evil))
        with pytest.raises(MessageError, match="bytes"):
            store.append(Message(topic="T", body="text"))
        assert all(offsets.maximum == 0 for offsets in store.offsets("T").values())
