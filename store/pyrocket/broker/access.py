"""Users, their secrets and their rights, from one TOML file.

    [users.spark]
    secret = "at least eight characters"

    [[rules]]
    users = ["spark"]
    topics = ["orders", "clicks-*"]
    groups = ["etl-*"]
    allow = ["subscribe"]

A rule allows or denies rights on the topics and groups that it names, with the wildcards of
`fnmatch`: `*` matches any string. Access is denied unless a rule allows it, and a rule that denies
takes precedence. The right `admin` includes the other two. A call on the whole store needs a rule
that allows `admin` on the topics "*", and is denied if any rule denies the user a right.

`SignatureAge` refuses calls that were signed too long ago, or too far in the future.
"""

import hmac
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase
from typing import Any

from pyrocket.base.clock import Clock, system_clock
from pyrocket.broker.files import WatchedFiles, read_toml, refuse_if_others_can_read
from pyrocket.broker.settings import nearest
from pyrocket.errors import NotAuthenticatedError, OptionError, StorePermissionError

_DATE = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)[T ](\d\d):?(\d\d):?(\d\d)(?:\.\d*)?(?:Z|([+-])(\d\d):?(\d\d))?"
)


@dataclass(frozen=True)
class SignatureAge:
    """The maximum difference between the date of a signature and the broker's clock.

    Official clients except the one for Node.js sign their local time as if it were UTC. A date is
    therefore compared with both UTC and the broker's local time.
    """

    max_s: float = 0
    """0: the date is not checked."""
    clock: Clock = system_clock

    def check(self, signed: bytes) -> None:
        """Raise NotAuthenticatedError unless the signed date is close to the broker's clock."""
        if not self.max_s:
            return
        now = datetime.fromtimestamp(self.clock() / 1000, timezone.utc)
        offset = now.astimezone().utcoffset() or timedelta()
        date = _parsed(signed)
        if date is not None and self.max_s >= min(
            abs((date - moment).total_seconds()) for moment in (now, now + offset)
        ):
            return
        raise NotAuthenticatedError(
            f"The call was signed at {signed.decode(errors='replace')!r}, but the clock of the"
            f" broker shows {now:%Y%m%dT%H%M%SZ}: signatures are valid for {self.max_s:g} s.",
            remedy="Correct the clock, or the time zone, of the client or of the broker, or set"
            " signature_age of the broker to 0.",
        )


ANY_AGE = SignatureAge()


def _parsed(signed: bytes) -> datetime | None:
    """Return the date of RocketMQ's form or of RFC 3339; None for any other text."""
    match = _DATE.fullmatch(signed.decode(errors="replace"))
    if match is None:
        return None
    *fields, sign, hours, minutes = match.groups(default="")
    try:
        year, month, day, hour, minute, second = map(int, fields)
        date = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
        offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        return date - offset if sign == "+" else date + offset
    except (ValueError, OverflowError):
        return None


CODE = "BROKER_USERS"
SUBSCRIBE, PUBLISH, ADMIN = "subscribe", "publish", "admin"
RIGHTS = (SUBSCRIBE, PUBLISH, ADMIN)
TOPIC, GROUP, STORE = "topic", "group", "store"
_RULE_KEYS = ("users", "topics", "groups", "allow", "deny")
_LEAST_SECRET = 8

_NO_SECRET = secrets.token_bytes(32)
"""The secret used for unknown users, so that their check takes as long as that of known users."""


@dataclass(frozen=True)
class Need:
    """A right on one topic or group, or on the whole store."""

    right: str
    kind: str
    name: str = "*"

    def __str__(self) -> str:
        """Return a description for error messages."""
        place = "the whole store" if self.kind == STORE else f"the {self.kind} {self.name}"
        return f"{self.right} on {place}"


@dataclass(frozen=True)
class Rule:
    """Allows or denies some rights on some topics and groups to some users."""

    users: Sequence[str] = ()
    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()

    def concerns(self, user: str, kind: str, name: str) -> bool:
        """Whether the rule applies to this user and topic or group."""
        named = self.topics if kind == TOPIC else self.groups
        return _matches(user, self.users) and _matches(name, named)


@dataclass(frozen=True)
class Access:
    """The users with their secrets, and the rules. `repr` hides the secrets."""

    secrets: Mapping[str, bytes] = field(repr=False)
    rules: Sequence[Rule] = ()
    age: SignatureAge = ANY_AGE

    def check_signature(self, user: str, signed: bytes, signature: bytes) -> None:
        """Raise NotAuthenticatedError unless `signature` is the HMAC-SHA1 by the user's secret.

        `signed` is a date, which must be close to the broker's clock: see `SignatureAge`.
        """
        expected = hmac.digest(self.secrets.get(user, _NO_SECRET), signed, "sha1")
        if not hmac.compare_digest(expected, signature):
            raise not_authenticated("the access key or the signature is wrong")
        self.age.check(signed)

    def check(self, user: str, need: Need) -> None:
        """Raise StorePermissionError unless the user has the right."""
        if not self.has(user, need):
            raise _no_right(user, str(need))

    def has(self, user: str, need: Need) -> bool:
        if need.kind == STORE:
            mine = [rule for rule in self.rules if _matches(user, rule.users)]
            allowed = any(ADMIN in rule.allow and "*" in rule.topics for rule in mine)
            return allowed and not any(rule.deny for rule in mine)
        rules = [rule for rule in self.rules if rule.concerns(user, need.kind, need.name)]
        allowed = any(need.right in rule.allow or ADMIN in rule.allow for rule in rules)
        return allowed and not any(need.right in rule.deny or ADMIN in rule.deny for rule in rules)

    def check_publishes(self, user: str) -> None:
        """Raise StorePermissionError unless the user may publish to at least one topic."""
        mine = [rule for rule in self.rules if rule.topics and _matches(user, rule.users)]
        if not any({PUBLISH, ADMIN} & {*rule.allow} for rule in mine):
            raise _no_right(user, "to publish to any topic")

    def has_any(self, user: str, kind: str, name: str) -> bool:
        """Whether the user has any right on a topic or group, and may therefore see its name."""
        return any(self.has(user, Need(right, kind, name)) for right in RIGHTS)


def _no_right(user: str, right: str) -> StorePermissionError:
    return StorePermissionError(
        f"the user {user} does not have the right {right}.",
        remedy="Let an administrator of the broker add a rule to its file of users.",
    )


def not_authenticated(reason: str) -> NotAuthenticatedError:
    """Return the error for a call with missing or wrong credentials."""
    return NotAuthenticatedError(
        f"The broker does not know the caller: {reason}.",
        remedy="Use `accessKey` and `secretKey` of a user in the broker's file of users.",
    )


def watch_access(path: str, age: SignatureAge = ANY_AGE) -> WatchedFiles[Access]:
    """Return the users and rights of a file, reloaded when it changes. Raises OptionError."""
    return WatchedFiles([path], lambda: read_access(path, age))


def read_access(path: str, age: SignatureAge = ANY_AGE) -> Access:
    """Return the users and rights of a file. Raises OptionError (BROKER_USERS).

    `age` is the maximum age of the signatures of calls; by default they do not expire.
    """
    refuse_if_others_can_read(path, code=CODE)
    tables = read_toml(path, code=CODE)
    _check_keys(path, "the file", tables, ("users", "rules"))
    users = tables.get("users", {})
    if not isinstance(users, dict) or not users:
        raise _wrong(f"{path} has no table of users", "Write [users.NAME] with a secret.")
    rules = tables.get("rules", [])
    return Access(
        {name: _secret(path, name, entry) for name, entry in users.items()},
        [_rule(path, number, entry, users) for number, entry in enumerate(rules, 1)],
        age,
    )


def _secret(path: str, name: str, entry: Any) -> bytes:
    where = f"users.{name}"
    _check_keys(path, where, entry, ("secret",))
    secret = entry.get("secret")
    if not isinstance(secret, str) or len(secret) < _LEAST_SECRET:
        raise _wrong(
            f"{where} in {path} has no secret of {_LEAST_SECRET} characters or more",
            "Generate one: openssl rand -hex 20",
        )
    return secret.encode()


def _rule(path: str, number: int, entry: Any, users: Collection[str]) -> Rule:
    where = f"rule {number}"
    _check_keys(path, where, entry, _RULE_KEYS)
    for key, value in entry.items():
        if not (isinstance(value, list) and value and all(isinstance(text, str) for text in value)):
            raise _wrong(f"{key} of {where} in {path} is {value!r}", "Use a list of strings.")
    rule = Rule(**entry)
    for right in (*rule.allow, *rule.deny):
        if right not in RIGHTS:
            raise _wrong(
                f"{where} in {path} has the unknown right {right!r}", nearest(right, RIGHTS)
            )
    for user in rule.users:
        if not any(fnmatchcase(name, user) for name in users):
            raise _wrong(f"{where} in {path} has the unknown user {user!r}", nearest(user, users))
    if not (rule.users and (rule.topics or rule.groups) and (rule.allow or rule.deny)):
        raise _wrong(
            f"{where} in {path} is incomplete", "Name users, rights, and topics or groups."
        )
    return rule


def _check_keys(path: str, where: str, entry: Any, known: Collection[str]) -> None:
    if not isinstance(entry, dict):
        raise _wrong(f"{where} in {path} is not a table", "See store/BROKER.md for an example.")
    for key in entry:
        if key not in known:
            raise _wrong(f"{where} in {path} has the unknown key {key!r}", nearest(key, known))


def _wrong(what: str, remedy: str) -> OptionError:
    return OptionError(f"{what}.", remedy=remedy, code=CODE)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
