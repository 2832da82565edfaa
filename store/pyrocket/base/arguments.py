"""Checks of the arguments that callers pass: types, ranges, sizes and paths.

Methods check their arguments first, and errors name the invalid argument.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from ipaddress import ip_address
from numbers import Integral, Real
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyrocket.errors import InvalidInputError, OptionError

_BY_TOPIC = "Use {topic: {queue id: next offset}}."


def check_numbers(**named: Any) -> None:
    """Raise InvalidInputError (NOT_A_NUMBER) that names the first non-integer argument."""
    for name, value in named.items():
        if not is_number(value):
            raise _wrong(name, value, "Use a whole number (int).", "NOT_A_NUMBER")


def check_text(**named: Any) -> None:
    """Raise InvalidInputError (NOT_A_TEXT) naming the first argument that is not a valid str."""
    for name, value in named.items():
        if not isinstance(value, str):
            raise _wrong(name, value, "Use a string (str).", "NOT_A_TEXT")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                f"{name} is {value!r}, which is not valid Unicode: {error.reason}.",
                remedy="Use a string that UTF-8 can encode.",
                code="NOT_A_TEXT",
            ) from error


def check_texts(**named: Any) -> None:
    """Raise InvalidInputError (NOT_A_TEXT) unless all arguments are collections of str."""
    for name, value in named.items():
        if isinstance(value, str | bytes) or not isinstance(value, Collection):
            raise _wrong(name, value, 'Use a list of strings (str), such as ["t"].', "NOT_A_TEXT")
        for text in value:
            check_text(**{f"one of {name}": text})


def check_type(wanted: type | tuple[type, ...], remedy: str, /, **named: Any) -> None:
    """Raise InvalidInputError (WRONG_TYPE) that names the first argument of another type."""
    for name, value in named.items():
        if not isinstance(value, wanted):
            raise _wrong(name, value, remedy, "WRONG_TYPE")


def _wrong(name: str, value: Any, remedy: str, code: str) -> InvalidInputError:
    kind = type(value).__name__
    return InvalidInputError(f"{name} is {value!r}, of type {kind}.", remedy=remedy, code=code)


def check_names(
    given: Collection[str], known: Collection[str], others: Collection[str] = (), *, code: str
) -> None:
    """Raise InvalidInputError with this code for the first unknown name of a keyword argument.

    The error has the nearest of `known` and `others`.
    """
    for name in given:
        if name not in known:
            near = get_close_matches(name, [*known, *others], 1)
            names = ", ".join(sorted(known))
            raise InvalidInputError(
                f"there is no setting {name!r}.",
                remedy=f"Did you mean {near[0]!r}?" if near else f"The settings are {names}.",
                code=code,
            )


def check_place(topic: Any, queue_id: Any, **offsets: Any) -> None:
    """Raise InvalidInputError unless topic, queue id and offsets have the right types."""
    check_text(topic=topic)
    check_numbers(queue_id=queue_id, **offsets)


def check_all_numbers(**named: Any) -> None:
    """Raise InvalidInputError that names the first argument that is not a sequence of integers."""
    check_type(Sequence, "Use a list of whole numbers.", **named)
    for name, numbers in named.items():
        for number in numbers:
            check_numbers(**{f"one of {name}": number})


def check_offsets(offsets: Any) -> None:
    """Raise InvalidInputError unless `offsets` maps topics to offsets by queue id."""
    check_type(Mapping, _BY_TOPIC, offsets=offsets)
    for topic, queues in offsets.items():
        check_type(Mapping, _BY_TOPIC, **{f"the offsets of {topic!r}": queues})
        for queue_id, offset in queues.items():
            check_place(topic, queue_id, offset=offset)


def path_of(given: Any, name: str, code: str) -> Path:
    """Return `given` as an absolute path. Raises InvalidInputError with `code` if it is invalid."""
    try:
        path = os.fspath(given)
        if isinstance(path, str) and path and b"\0" not in os.fsencode(path):
            return Path(path).absolute()
    except (TypeError, UnicodeEncodeError):
        pass
    raise InvalidInputError(
        f"{name} is {given!r}.",
        remedy="Name its directory, as a str or a Path; '.' is the current one.",
        code=code,
    )


_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,30})([kmgt]?)(?:i?b)?", re.IGNORECASE)

LONGEST_MS = 2**42
"""The longest timeout that the system supports, about 139 years."""


def is_number(value: Any) -> bool:
    """Whether `value` is an integer (numpy's included) and not a bool."""
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def is_whole(value: Any, least: int = 0, most: int = 2**63 - 1) -> bool:
    """Whether `value` is an integer from `least` to `most`."""
    return is_number(value) and bool(least <= value <= most)


def check_whole(name: str, value: Any, least: int = 0, most: int = 2**63 - 1) -> None:
    """Raise OptionError unless `value` is an integer from `least` to `most`."""
    if not is_whole(value, least, most):
        raise OptionError(
            f"{name} is {value!r}.", remedy=f"Use a whole number from {least} to {most}."
        )


def parse_size(text: str) -> int | None:
    """Return a size such as `512`, `64k`, `10g` or `1TiB` in bytes; None if it is invalid.

    Units are powers of 1024. The result may be larger than any file system.
    """
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _BYTES[match[2].lower()] if match else None


def format_size(size: int) -> str:
    """Return a human-readable size, such as `512 bytes` or `1.5 GiB`."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(size) >= 1 << power:
            return f"{size / (1 << power):,.1f} {unit}"
    return f"{size} bytes"


def check_amount(name: str, value: Any) -> None:
    """Raise OptionError unless `value` is a number ≥ 0; infinity is allowed, NaN is not."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and value >= 0):
        raise OptionError(f"{name} is {value!r}.", remedy="Use a number of 0 or more.")


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def local_path(text: str) -> str:
    """Return a path or `file:` URI as a path with `~` expanded; relative paths stay relative.

    Raises OptionError for another scheme, another host and a Windows path.
    """
    scheme = _SCHEME.match(text)
    if scheme is not None:
        text = _path_of_uri(text, scheme[1].lower())
    return os.path.expanduser(text)


def _path_of_uri(uri: str, scheme: str) -> str:
    if len(scheme) == 1:
        raise OptionError(
            f"The path {uri!r} is a Windows path; pyrocket does not run on Windows.",
            remedy=f"In WSL write /mnt/{scheme}/... for drive {scheme.upper()}:, or better a "
            "directory of Linux's own, such as ~/store.",
        )
    if scheme != "file":
        raise OptionError(
            f"The path {uri!r} has the scheme {scheme!r}.",
            remedy="A store is a local or mounted directory: give a path or a file: URI "
            "(./ before a name that contains a colon).",
        )
    # '?' and '#' are legal in file names, and Hadoop's paths have no query or fragment.
    rest = uri[len("file:") :]
    host = urlsplit(rest.split("?")[0].split("#")[0]).netloc if rest.startswith("//") else ""
    path = rest[2 + len(host) :] if rest.startswith("//") else rest
    if host not in {"", "localhost"} or not path.startswith("/"):
        raise OptionError(
            f"The URI {uri!r} does not name a local absolute path.",
            remedy="Write file:///absolute/path.",
        )
    return unquote(path)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 message` or `2,000 messages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


MAX_PORT = 65_535
_MAX_CHARACTERS = 300


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and the port of an address. Raises OptionError (ADDRESS_INVALID)."""
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_valid = (
        0 < len(host) <= _MAX_CHARACTERS
        and host.isprintable()
        and not set(host) & set("/\\, ")
        and (":" not in host or is_bracketed)
    )
    if is_valid and port.isascii() and port.isdigit() and 0 < int(port) <= MAX_PORT:
        return host.strip("[]"), int(port)
    raise OptionError(
        f"{text[:_MAX_CHARACTERS]!r} is not an address.",
        remedy="Write host:port, such as broker.example:8081 or [::1]:8081.",
        code="ADDRESS_INVALID",
    )


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return addresses separated by commas or semicolons. Raises OptionError (ADDRESS_INVALID)."""
    addresses = tuple(part.strip() for part in re.split("[,;]", text.strip(",; \n")))
    for address in addresses:
        parse_address(address)
    return addresses


def parse_named_addresses(text: str) -> dict[str, str]:
    """Return addresses by name, as in a=host:1,b=host:2. Raises OptionError (ADDRESS_INVALID)."""
    named = {}
    for part in re.split("[,;]", text.strip(",; \n")):
        name, _, address = map(str.strip, part.partition("="))
        parse_address(address if name else "")
        named[name] = address
    return named


def check_advertised(address: str) -> None:
    """Reject an address that other machines cannot connect to, such as 0.0.0.0:8081.

    Raises OptionError (ADDRESS_INVALID, ADVERTISE_UNSPECIFIED).
    """
    host, _ = parse_address(address)
    if is_unspecified(host):
        raise OptionError(
            f"clients cannot connect to {address}.",
            remedy="Advertise an address at which clients reach the broker: --advertise HOST:PORT.",
            code="ADVERTISE_UNSPECIFIED",
        )


def is_unspecified(host: str) -> bool:
    """Whether the host stands for all addresses of a machine, as 0.0.0.0 and :: do."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
