"""Users of brokers and name servers. Each has the secret `secret_of(user)`."""

import json

from pyrocket.base.credentials import Credentials
from pyrocket.broker.access import read_access

ADMIN = "admin", "*", "*"


def write_users(folder, **allowed):
    """Write a users file, in which each user is allowed (rights, topics, groups), and return it.

    These are words, separated by spaces; a user without rights has None.
    """
    lines = [f'[users.{user}]\nsecret = "{secret_of(user)}"' for user in allowed]
    for user, rule in allowed.items():
        words = zip(("allow", "topics", "groups"), rule or (), strict=False)
        if rule:
            lines += ["[[rules]]", f'users = ["{user}"]']
        lines += [f"{key} = {json.dumps(value.split())}" for key, value in words]
    path = folder / "users.toml"
    path.touch(0o600)
    path.write_text("\n".join(lines) + "\n")
    return path


def access_of(folder, **allowed):
    """Return the users of `write_users` as a broker has them."""
    return read_access(str(write_users(folder, **allowed)))


def secret_of(user):
    return f"the {user}'s secret"


def credentials(user, **more):
    return Credentials(access_key=user, secret_key=secret_of(user), **more)
