"""What an error tells its reader to do has to work."""

import os
import re
import shlex

import pytest
from click.testing import CliRunner
from pyrocket import Message, Store
from pyrocket.cli import main
from pyrocket.errors import REBUILD_QUEUES, StoreDamagedError


def test_the_queues_are_rebuilt_as_the_error_says(tmp_path):
    root = tmp_path / "store"
    with Store.open(root, create=True) as store:
        for number in range(50):
            store.append(Message(topic="T", body=b"%d" % number, queue_id=number % 2))
    (file,) = (root / "consumequeue/T/0").iterdir()
    changed = file.stat().st_mtime_ns
    with file.open("r+b") as queue:
        queue.seek(20 * 3)
        queue.write((40).to_bytes(8, "big"))
    # Else it would be noticed, and mended, when the store is opened.
    os.utime(file, ns=(changed, changed))
    with Store.open(root) as store, pytest.raises(StoreDamagedError) as caught:
        list(store.scan("T", 0, 0, 25, ["body"]))
    assert caught.value.remedy == REBUILD_QUEUES
    command = shlex.split(re.search(r"`pyrocket ([^`]*)`", REBUILD_QUEUES)[1])
    done = CliRunner().invoke(main, [*command, str(root), "--yes"])
    assert done.exit_code == 0, done.output
    with Store.open(root) as store:
        for queue_id in (0, 1):
            bodies = [message.body for message in store.read("T", queue_id, 0, 100)]
            assert bodies == [b"%d" % number for number in range(queue_id, 50, 2)]
