"""A library for LD_PRELOAD, with which the writes and fsyncs of a process fail on request."""

import shutil
import subprocess

import pytest

_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int fails(const char *what) {
    const char *folder = getenv("FAILING_DISK");
    char path[4096];
    if (!folder || strlen(folder) + strlen(what) + 2 > sizeof path)
        return 0;
    strcat(strcat(strcpy(path, folder), "/"), what);
    int before = errno, found = access(path, F_OK) == 0;
    errno = found ? EIO : before;
    return found;
}

#define WRITE(name) \\
    ssize_t name(int file, const void *data, size_t size, off64_t at) { \\
        static ssize_t (*real)(int, const void *, size_t, off64_t); \\
        if (!real) real = dlsym(RTLD_NEXT, #name); \\
        return fails("write") ? -1 : real(file, data, size, at); \\
    }
WRITE(pwrite)
WRITE(pwrite64)

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    return fails("fsync") ? -1 : real(file);
}
"""


class FailingDisk:
    """Lets pwrite and fsync fail in processes with `environment`, as long as a file exists."""

    def __init__(self, folder):
        self._folder = folder
        folder.mkdir()
        source, library = folder / "failing.c", folder / "failing.so"
        source.write_text(_SOURCE)
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            pytest.skip("needs a C compiler")
        command = [compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"]
        subprocess.run(command, check=True)
        self.environment = {"LD_PRELOAD": str(library), "FAILING_DISK": str(folder)}

    def fail(self, what):
        """Let `write` or `fsync` fail from now on."""
        (self._folder / what).touch()

    def work(self, what):
        (self._folder / what).unlink()
