"""Many queues need few descriptors, and a lack of descriptors is not a failed fsync."""

import subprocess
import sys

MANY_QUEUES = """
import os, resource, sys
from pyrocket import Message, Store, StoreConfig

sizes = StoreConfig(log_file_bytes=1 << 20, queue_file_entries=100)
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
with Store.open(sys.argv[1], create=True, config=sizes) as store:
    store.topics.create("T", read_queues=160, write_queues=160)
    for queue in range(160):
        store.append(Message(topic="T", body=b"x", queue_id=queue))
    assert {offsets.maximum for offsets in store.offsets("T").values()} == {1}
with Store.open(sys.argv[1], read_only=True) as store:
    assert len(store.read("T", 159, 0)) == 1
open(f"{sys.argv[1]}/abort", "w").close()
os.remove(f"{sys.argv[1]}/pyrocket/state")
with Store.open(sys.argv[1]) as store:
    assert store.append(Message(topic="T", body=b"x", queue_id=0)).queue_offset == 1
"""


def test_a_hundred_queues_are_written_read_and_recovered_with_few_descriptors(tmp_path):
    subprocess.run([sys.executable, "-c", MANY_QUEUES, tmp_path / "store"], check=True)
