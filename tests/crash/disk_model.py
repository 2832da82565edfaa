"""A model of a disk: its operations, and the states that a power loss may leave.

A `Disk` replays the operations of a `Recorder`. `Disk.crash` returns a state that the disk may have
after a power loss at this moment: fsynced data is complete; all other data is written, lost or torn
at sectors. A power loss undoes only the last changes of the names in a folder.
"""

import os

SECTOR = 512
DATA_MODES = ("lost", "kept", "last", "late", "random", "random", "random", "sectors")
NAME_MODES = ("lost", "kept", "prefix", "folders", "folders")


class File:
    """The durable content of a file, and the operations since its last fsync."""

    def __init__(self, content=b""):
        self.content, self.pending = content, []

    def sync(self):
        self.content = apply_writes(self.content, self.pending)
        self.pending = []


class Disk:
    """Replays the operations that a Recorder recorded."""

    def __init__(self, image):
        self._folders, self._files = {0: {}}, {}
        self._pending, self._moment = [], 0
        nodes = {"": 0}
        for number, (name, content) in enumerate(image.items(), 1):
            head, _, tail = name.rpartition("/")
            self._folders[nodes[head]][tail] = nodes[name] = number
            if content is None:
                self._folders[number] = {}
            else:
                self._files[number] = File(content)

    def apply(self, op):
        self._moment += 1
        kind, *rest = op
        if kind in ("write", "length"):
            self._files[rest[0]].pending.append((self._moment, *rest[1:]))
        elif kind == "sync":
            self._files[rest[0]].sync()
        elif kind == "sync_directory":
            self._sync_directory(rest[0])
        else:
            # A link is a second name of an existing file.
            if kind == "create":
                self._files[rest[2]] = File()
            elif kind == "mkdir":
                self._folders[rest[2]] = {}
            self._pending.append(op)

    def _sync_directory(self, folder):
        """Make the names in the folder durable, and earlier changes in folders that its renames
        involve.
        """
        needed, durable, left = {folder}, [], []
        for op in reversed(self._pending):
            if _folders_of(op) & needed:
                needed |= _folders_of(op)
                durable.append(op)
            else:
                left.append(op)
        for op in reversed(durable):
            _change_names(self._folders, op)
        self._pending = left[::-1]

    def crash(self, rng, data_mode, name_mode):
        """Return a state after a power loss: name → content, None for a folder."""
        folders = {node: dict(names) for node, names in self._folders.items()}
        for op in _names_kept(self._pending, rng, name_mode):
            _change_names(folders, op)
        files = self._contents(rng, data_mode)
        image = {}
        _collect(folders, files, 0, "", image)
        return image

    def _contents(self, rng, mode):
        writes = [write for file in self._files.values() for write in file.pending]
        last = max((write[0] for write in writes), default=0)
        return {
            node: apply_writes(file.content, _writes_kept(file.pending, rng, mode, last))
            for node, file in self._files.items()
        }


def _folders_of(op):
    return {op[1], op[3]} if op[0] == "rename" else {op[1]}


def _change_names(folders, op):
    kind, folder, name, *rest = op
    if kind == "rename":
        node = folders[folder].pop(name, None)
        if node is not None:
            folders[rest[0]][rest[1]] = node
    elif kind == "unlink":
        folders[folder].pop(name, None)
    else:
        folders[folder][name] = rest[0]


def _names_kept(pending, rng, mode):
    if mode == "prefix":
        return pending[: rng.randint(0, len(pending))]
    if mode != "folders":
        return pending if mode == "kept" else []
    kept, cut = [], set()
    for op in pending:
        if _folders_of(op) & cut or rng.random() < 0.3:
            cut |= _folders_of(op)
        else:
            kept.append(op)
    return kept


def _writes_kept(pending, rng, mode, last):
    """Return the writes that reached the disk, split into sectors, in order."""
    if mode == "kept":
        return pending
    if mode == "last":
        return [write for write in pending if write[0] == last]
    if mode == "late":
        return pending[1:]
    if mode == "random":
        return [part for write in pending for part in _some_of(write, rng)]
    if mode == "sectors":
        # Each sector has the content of some moment since the last fsync.
        moments = {}
        parts = [part for write in pending for part in _sectors(write)]
        for part in parts:
            key = part[1] // SECTOR if len(part) == 3 else -1
            moments.setdefault(key, rng.choice([0, *(write[0] for write in pending)]))
        return [p for p in parts if p[0] <= moments[p[1] // SECTOR if len(p) == 3 else -1]]
    return []


def _some_of(write, rng):
    fate = rng.random()
    if fate < 0.35:
        return [write]
    if fate < 0.6:
        return []
    parts = _sectors(write)
    if fate < 0.8:
        at = rng.randint(0, len(parts))
        return parts[:at] if rng.random() < 0.5 else parts[at:]
    return [part for part in parts if rng.random() < 0.5]


def _sectors(write):
    if len(write) == 2:
        return [write]
    moment, offset, data = write
    bounds = [offset, *range(offset - offset % SECTOR + SECTOR, offset + len(data), SECTOR)]
    ends = [*bounds[1:], offset + len(data)]
    return [
        (moment, first, data[first - offset : end - offset])
        for first, end in zip(bounds, ends, strict=True)
    ]


def apply_writes(content, writes):
    """Return the content after writes (moment, offset, data) and length changes (moment,
    length)."""
    changed = bytearray(content)
    for _, at, *data in writes:
        end = at + len(data[0]) if data else at
        if len(changed) < end:
            changed.extend(bytes(end - len(changed)))
        if data:
            changed[at:end] = data[0]
        else:
            del changed[at:]
    return bytes(changed)


def _collect(folders, files, node, prefix, image):
    for name, child in folders[node].items():
        image[prefix + name] = files.get(child)
        if child in folders:
            _collect(folders, files, child, f"{prefix}{name}/", image)


def materialise(image, base):
    """Write an image into a new folder."""
    os.mkdir(base)
    for name, content in image.items():
        path = f"{base}/{name}"
        if content is None:
            os.mkdir(path)
            continue
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o666)
        os.write(descriptor, content)
        os.close(descriptor)
