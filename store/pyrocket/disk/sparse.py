"""Files with holes: finding what has been written."""

import errno
import os
from pathlib import Path


def data_from(path: Path, offset: int) -> int:
    """Return where the next written part of the file begins; its length if there is none.

    `offset` itself where the system cannot tell.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return max(offset, os.fstat(descriptor).st_size)
        return offset
    finally:
        os.close(descriptor)
