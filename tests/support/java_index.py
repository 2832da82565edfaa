"""RocketMQ's index files: a transcription of `IndexFile.putKey` and `IndexService`.

This slow code follows the description of the algorithm, field by field. It is the reference for the
vectorised code.
"""

import struct

from pyrocket.formats.hashes import java_hash

HEADER, ITEM, INT = struct.Struct(">qqqqii"), struct.Struct(">iqii"), struct.Struct(">i")


class JavaFile:
    def __init__(self, slots, items, end_offset, end_timestamp):
        self.slots, self.most = slots, items
        self.slot, self.items, self.count, self.slot_count = {}, {}, 1, 0
        self.begin_timestamp = self.end_timestamp = end_timestamp
        self.begin_offset = self.end_offset = end_offset

    def put(self, key, offset, stored):
        if self.count >= self.most:
            return False
        key_hash = abs(java_hash(key))
        key_hash = 0 if key_hash == 2**31 else key_hash
        at = key_hash % self.slots
        previous = self.slot.get(at, 0)
        if previous <= 0 or previous > self.count:
            previous = 0
        seconds = (stored - self.begin_timestamp) // 1000
        if self.begin_timestamp <= 0 or seconds < 0:
            seconds = 0
        self.items[self.count] = (key_hash, offset, min(seconds, 2**31 - 1), previous)
        self.slot[at] = self.count
        if self.count <= 1:
            self.begin_offset, self.begin_timestamp = offset, stored
        self.slot_count += previous == 0
        self.count += 1
        self.end_offset, self.end_timestamp = offset, stored
        return True

    def __bytes__(self):
        data = bytearray(40 + 4 * self.slots + 20 * self.most)
        times = self.begin_timestamp, self.end_timestamp
        offsets = self.begin_offset, self.end_offset
        # RocketMQ writes the count with the first put.
        count = self.count if self.count > 1 else 0
        data[:40] = HEADER.pack(*times, *offsets, self.slot_count, count)
        for at, number in self.slot.items():
            data[40 + 4 * at : 44 + 4 * at] = INT.pack(number)
        for number, item in self.items.items():
            first = 40 + 4 * self.slots + 20 * number
            data[first : first + 20] = ITEM.pack(*item)
        return bytes(data)


class JavaIndex:
    def __init__(self, slots, items):
        self.geometry, self.files = (slots, items), []

    def _last(self):
        if not self.files or self.files[-1].count >= self.files[-1].most:
            last = self.files[-1] if self.files else None
            end = (last.end_offset, last.end_timestamp) if last else (0, 0)
            self.files.append(JavaFile(*self.geometry, *end))
        return self.files[-1]

    def build(self, topic, offset, stored, words):
        """Index one message under its keys, the unique id first."""
        if offset < self._last().end_offset:
            return
        for word in words:
            while not self._last().put(f"{topic}#{word}", offset, stored):
                pass

    def contents(self):
        return [bytes(file) for file in self.files]
