"""Writes checkpoints as Spark does, and runs `pyrocket checkpoint` commands on them."""

import json
import zlib

from click.testing import CliRunner
from pyrocket.tools.cli import main
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns

from support.json_manual import Checker

SCHEMA = default_columns(kafka=False, headers=False, text=False)
SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{"a":"b"}}'


class Files:
    """Writes a checkpoint as Spark does, with the micro-batches that a test chooses."""

    def __init__(self, path, box, **options):
        self.path, self.box, self.number = path, box, 0
        for name in ("offsets", "commits"):
            (path / name).mkdir(parents=True)
        (path / "metadata").write_text('{"id":"q-1"}')
        asked = options or {"topic": box.topic}
        place = {} if box is None else {"path": box.path}
        asked |= {**place, "startingOffsets": "earliest"}
        self.reader = DefaultSource(asked).streamReader(schema=SCHEMA)
        self.position = self.reader.initialOffset()

    def plan(self, *others):
        """Plan a micro-batch with all messages; `others` contains the lines of other sources."""
        self.position = json.loads(json.dumps(self.reader.latestOffset(self.position, None)))
        lines = ["v1", SETTINGS, json.dumps(self.position), *others]
        self.put(f"offsets/{self.number}", "\n".join(lines))
        self.number += 1

    def commit(self):
        self.put(f"commits/{self.number - 1}", 'v1\n{"nextBatchWatermarkMs":0}')

    def put(self, name, text):
        file = self.path / name
        file.write_text(text)
        data = text.encode()
        sums = [zlib.crc32(data[at : at + 512]) for at in range(0, len(data), 512)]
        crc = b"crc\0\0\0\2\0" + b"".join(each.to_bytes(4, "big") for each in sums)
        file.with_name(f".{file.name}.crc").write_bytes(crc)

    def offset(self, batch, line=2):
        return json.loads((self.path / f"offsets/{batch}").read_text().splitlines()[line])


def run(*arguments, status=0, env=None):
    done = CliRunner().invoke(main, ["checkpoint", *map(str, arguments)], env=env)
    assert done.exit_code == status, (done.output, done.exception)
    return done.output


def run_json(*arguments, status=0):
    """Run a command, and return its JSON, which has the fields that `store/JSON.md` lists."""
    found = json.loads(run(*arguments, "--json", status=status))
    shape = "Any command" if "error" in found else f"checkpoint {arguments[0]}"
    Checker().check(shape, found)
    return found


def reset(files, *arguments, **expected):
    return run_json("reset", files.path, "--path", files.box.path, *arguments, **expected)


def everything(path):
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
