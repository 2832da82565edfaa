"""The topic of a row is checked like a topic argument."""

import pyarrow as pa
import pytest
from pyrocket import Message, Store
from pyrocket.errors import TopicNameError


@pytest.mark.parametrize("name", ["SCHEDULE_TOPIC_XXXX", "not legal", "rmq_sys_x"])
def test_the_first_row_with_a_topic_closed_to_users_is_reported(tmp_path, name):
    batch = pa.record_batch({"body": ["a", "b"], "topic": ["fine", name]})
    with Store.open(tmp_path / "store", create=True) as store:
        with pytest.raises(TopicNameError, match="row 1"):
            store.append_batch(batch)
        with pytest.raises(TopicNameError):
            store.append(Message(topic=name, body=b"x"))
        assert not store.topics.all()
