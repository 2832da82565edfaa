"""Kinds of damage to the JSON files of a small store, and folders in place of files."""

import json
import shutil
from functools import partial

from support.damage import Damage
from support.stores import log_files, queue_files

GROUPS, OFFSETS, LEVELS, TOPICS = (
    f"config/{name}.json"
    for name in ("subscriptionGroup", "consumerOffset", "delayOffset", "topics")
)
ENDS = '{"logEnd":1,"queues":{"t/0":5}}'
OWN = [f"pyrocket/{name}.json" for name in ("store", "topics", "epochs", "sink", "cursors")]


def write(text, name, path, *, backup=""):
    """Overwrite a file with a string; overwrite its backup with `backup`, or delete the backup."""
    (path / name).write_text(text)
    (path / f"{name}.bak").unlink(missing_ok=True)
    if backup:
        (path / f"{name}.bak").write_text(backup)


def folder_for(name, path):
    """Replace a file by a folder."""
    (path / name).unlink(missing_ok=True)
    (path / name).mkdir()
    (path / name / "mine").touch()


def file_for(name, path):
    """Replace a folder by a file."""
    shutil.rmtree(path / name, ignore_errors=True)
    (path / name).write_text("mine")


def forget_topic(path):
    table = json.loads((path / TOPICS).read_text())
    del table["topicConfigTable"]["u"]
    (path / TOPICS).write_text(json.dumps(table))
    (path / "pyrocket/topics.json").unlink()


def illegal_topic(path):
    entry = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    text = json.dumps({"topicConfigTable": {"t/u": entry}})
    write(text, TOPICS, path, backup=(path / f"{TOPICS}.bak").read_text())


def of_table(name, file, text, code="CONFIG_BROKEN", mended=False):
    return Damage(name, partial(write, text, file), code, mended=mended)


TABLE_DAMAGES = [
    of_table("levels no numbers", LEVELS, '{"offsetTable":{1:"x"}}'),
    of_table("levels no table", LEVELS, "[]"),
    of_table("group offsets no table", OFFSETS, "[]"),
    of_table("group offsets no numbers", OFFSETS, '{"offsetTable":{"t@g":{0:"x"}}}'),
    of_table("group offset too far", OFFSETS, '{"offsetTable":{"t@g":{0:61}}}', "GROUP_OFFSET"),
    of_table("group offset negative", OFFSETS, '{"offsetTable":{"t@g":{0:-1}}}', "GROUP_OFFSET"),
    of_table("groups no table", GROUPS, "[]"),
    of_table("groups empty", GROUPS, "", "CONFIG_EMPTY", mended=True),
    of_table("topics no table", TOPICS, '{"topicConfigTable":[]}'),
    of_table("topics forgotten", TOPICS, "{}", "CONFIG_TOPIC_MISSING", mended=True),
    of_table("ends no table", "pyrocket/ends.json", "[]", "ENDS_DAMAGED", mended=True),
    of_table("ends no ends", "pyrocket/ends.json", ENDS, "ENDS_DAMAGED", mended=True),
    Damage("topic forgotten", forget_topic, "CONFIG_TOPIC_MISSING", mended=False),
    Damage("topic illegal", illegal_topic, "CONFIG_FROM_BACKUP"),
    Damage("tables gone", lambda path: shutil.rmtree(path / "config"), "CONFIG_MISSING"),
    Damage("topics a folder", partial(folder_for, TOPICS), "CONFIG_FROM_BACKUP"),
    Damage("ends a folder", partial(folder_for, "pyrocket/ends.json"), "ENDS_DAMAGED"),
    Damage("tables a file", partial(file_for, "config"), "CONFIG_BROKEN", mended=False),
    Damage("log a file", partial(file_for, "commitlog"), "LOG_FILE_MISSING", mended=False),
    Damage(
        "log file a folder",
        lambda path: folder_for(log_files(path)[1].relative_to(path), path),
        "LOG_FILE_MISSING",
        mended=False,
    ),
    Damage(
        "queue file a folder",
        lambda path: folder_for(queue_files(path)[1].relative_to(path), path),
        "FOREIGN_FILE",
    ),
    *(
        Damage(f"{name} a folder", partial(folder_for, name), "FOREIGN_FILE")
        for name in ("abort", "checkpoint", "config/timercheck", "pyrocket/checkpoint")
    ),
    *(
        Damage(f"{name} a folder", partial(folder_for, name), "FOREIGN_FILE")
        for name in ("pyrocket/state", "pyrocket/keys", "pyrocket/handed.json")
    ),
    *(
        Damage(f"{name} a file", partial(file_for, name), "FOREIGN_FILE")
        for name in ("consumequeue", "index", "pyrocket/timers")
    ),
    *(of_table(f"{name} no json", name, "xx") for name in OWN),
    *(of_table(f"{name} no table", name, "[5]") for name in OWN),
    *(of_table(f"{name} empty", name, "") for name in OWN if name != "pyrocket/epochs.json"),
    *(
        Damage(f"{name} a folder", partial(folder_for, name), "CONFIG_BROKEN", mended=False)
        for name in OWN
    ),
]
