"""What has to be as a store makes it before a writer changes anything: its fixed names."""

import stat

from pyrocket.disk.io import SMALL_FILE_BYTES, check_file_size
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import linked, naming_obstacles, wrong_kind
from pyrocket.disk.tree import links_of


@naming_obstacles
def check_fixed_names(layout: Layout) -> None:
    """Raise StoreDamagedError if a link, a device or a huge file has the name of a store's file.

    The codes are STORE_LINKED, STORE_FILE_KIND and STORE_FILE_SIZE. Names of the log, the queues
    and the key index are checked when they are opened.
    """
    for link in links_of(layout.root, everywhere=False):
        raise linked(link)
    for path in (layout.abort, layout.lock, layout.checkpoint, layout.own_checkpoint):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            check_file_size(path, status.st_size, SMALL_FILE_BYTES)
        elif not stat.S_ISDIR(status.st_mode):
            raise wrong_kind(path)
