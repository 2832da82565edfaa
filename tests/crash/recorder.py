"""Records every disk operation of a run at `pyrocket.disk.io`, in order."""

import os
import threading
from pathlib import Path

from pyrocket.disk import io


class Recorder:
    """Records the operations on all paths under `base`, as tuples for `Disk.apply`."""

    def __init__(self, base, image=None):
        self.base, self.ops, self.image = Path(base), [], dict(image or {})
        self._lock = threading.RLock()
        self._nodes, self._count = {"": 0}, 0
        for name in self.image:
            self._new(name)

    def __enter__(self):
        self._real = {name: getattr(io, name) for name in self._instead()}
        for name, operation in self._instead().items():
            setattr(io, name, operation)
        return self

    def __exit__(self, *_):
        for name, operation in self._real.items():
            setattr(io, name, operation)

    def _instead(self):
        return {
            "write_at": self._write_at,
            "sync": self._sync,
            "sync_directory": self._sync_directory,
            "rename": self._rename,
            "link": self._link,
            "unlink": self._unlink,
            "clear_directory": self._clear_directory,
            "set_length": self._set_length,
            "make_directory": self._make_directory,
        }

    def _new(self, name):
        self._count += 1
        self._nodes[name] = self._count
        return self._count

    def _name(self, path):
        name = os.path.relpath(path, self.base)
        return "" if name == "." else name

    def _folder(self, name):
        """Return the folder and the last part of a name; record folders that were not created
        through io.
        """
        head, _, tail = name.rpartition("/")
        if head not in self._nodes:
            self._made("mkdir", head)
        return self._nodes[head], tail

    def _made(self, kind, name):
        folder, tail = self._folder(name)
        self.ops.append((kind, folder, tail, self._new(name)))

    def _node(self, descriptor):
        """Return the file of a descriptor, or None if the file was deleted; record a new file as
        created.
        """
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.endswith(" (deleted)"):
            return None
        name = self._name(path)
        if name not in self._nodes:
            self._made("create", name)
        return self._nodes[name]

    def _write_at(self, descriptor, data, offset):
        with self._lock:
            node = self._node(descriptor)
            self._real["write_at"](descriptor, data, offset)
            if node is not None:
                self.ops.append(("write", node, offset, bytes(memoryview(data).cast("B"))))

    def _set_length(self, descriptor, length):
        with self._lock:
            node = self._node(descriptor)
            self._real["set_length"](descriptor, length)
            self.ops.append(("length", node, length))

    def _sync(self, descriptor):
        with self._lock:
            node = self._node(descriptor)
            if node is not None:
                self.ops.append(("sync", node))

    def _sync_directory(self, path):
        with self._lock:
            name = self._name(path)
            if not name.startswith(".."):
                self._folder(f"{name}/x" if name else "x")
                self.ops.append(("sync_directory", self._nodes[name]))

    def _rename(self, source, target):
        with self._lock:
            self._real["rename"](source, target)
            old, new = self._name(source), self._name(target)
            self.ops.append(("rename", *self._folder(old), *self._folder(new)))
            self._forget(new)
            for name in [name for name in self._nodes if name == old or name.startswith(old + "/")]:
                self._nodes[new + name[len(old) :]] = self._nodes.pop(name)

    def _link(self, source, target):
        with self._lock:
            self._real["link"](source, target)
            known, name = self._name(source), self._name(target)
            if known not in self._nodes:
                self._made("create", known)
            self.ops.append(("link", *self._folder(name), self._nodes[known]))
            self._nodes[name] = self._nodes[known]

    def _unlink(self, path):
        with self._lock:
            self._real["unlink"](path)
            name = self._name(path)
            if name in self._nodes:
                self.ops.append(("unlink", *self._folder(name)))
                self._forget(name)

    def _clear_directory(self, path):
        with self._lock:
            self._real["clear_directory"](path)
            folder = self._name(path)
            for name in [one for one in self._nodes if one.rpartition("/")[0] == folder]:
                self.ops.append(("unlink", *self._folder(name)))
                self._forget(name)

    def _forget(self, name):
        for known in [one for one in self._nodes if one == name or one.startswith(name + "/")]:
            del self._nodes[known]

    def _make_directory(self, path):
        with self._lock:
            if path.is_dir():
                return
            self._make_directory(path.parent)
            self._made("mkdir", self._name(path))
            # The real function syncs the names in the parent, and this sync is recorded.
            self._real["make_directory"](path)
