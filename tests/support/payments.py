"""Messages about payments that must be made once."""

from pyrocket.message import StoredMessage

TOPIC = "payments"


def payment(keys, topic=TOPIC, msg_id="id"):
    return StoredMessage(
        topic=topic,
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        store_size=100,
        body=keys.encode(),
        properties={"KEYS": keys} if keys else {},
        born_timestamp=0,
        store_timestamp=0,
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
        flag=0,
        sys_flag=0,
        reconsume_times=0,
        prepared_transaction_offset=0,
        msg_id=msg_id,
    )
