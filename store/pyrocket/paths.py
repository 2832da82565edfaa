"""The directory that a text names: a path, or a `file:` URI as Spark's paths are written."""

import os
import re
from urllib.parse import unquote, urlsplit

from pyrocket.errors import OptionError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def local_path(text: str) -> str:
    """Return the path that `text` names, `~` expanded; a relative one stays relative.

    Raises OptionError for another scheme, another host and a path of Windows.
    """
    scheme = _SCHEME.match(text)
    if scheme is not None:
        text = _path_of_uri(text, scheme[1].lower())
    return os.path.expanduser(text)


def _path_of_uri(uri: str, scheme: str) -> str:
    if len(scheme) == 1:
        raise OptionError(
            f"The path {uri!r} is one of Windows, where pyrocket does not run.",
            remedy=f"In WSL write /mnt/{scheme}/... for what is on drive {scheme.upper()}:, or "
            "better a directory of Linux's own, such as ~/store.",
        )
    if scheme != "file":
        raise OptionError(
            f"The path {uri!r} has the scheme {scheme!r}.",
            remedy="A store is a local or mounted directory: give a path or a file: URI "
            "(./ before a name that contains a colon).",
        )
    # '?' and '#' are legal in file names, and Hadoop's paths know no query or fragment.
    rest = uri[len("file:") :]
    host = urlsplit(rest.split("?")[0].split("#")[0]).netloc if rest.startswith("//") else ""
    path = rest[2 + len(host) :] if rest.startswith("//") else rest
    if host not in {"", "localhost"} or not path.startswith("/"):
        raise OptionError(
            f"The URI {uri!r} does not name a local absolute path.",
            remedy="Write file:///absolute/path.",
        )
    return unquote(path)
