"""Users and rights: what a users file allows, and which files are rejected."""

import logging
import os

import pytest
from pyrocket.broker import files
from pyrocket.broker.access import (
    ADMIN,
    GROUP,
    PUBLISH,
    STORE,
    SUBSCRIBE,
    TOPIC,
    Need,
    read_access,
    watch_access,
)
from pyrocket.errors import NotAuthenticatedError, OptionError, StorePermissionError

USERS = """
[users.spark]
secret = "spark's secret"

[users.root]
secret = "root's secret"

[[rules]]
users = ["spark"]
topics = ["orders", "clicks-*"]
groups = ["etl"]
allow = ["subscribe"]

[[rules]]
users = ["spark"]
topics = ["clicks-secret"]
deny = ["subscribe"]

[[rules]]
users = ["root"]
topics = ["*"]
allow = ["admin"]
"""


@pytest.fixture
def write(tmp_path):
    def write(text, mode=0o600):
        path = tmp_path / "users.toml"
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    return write


def test_a_rule_applies_to_the_topics_and_groups_that_it_names(write):
    access = read_access(write(USERS))
    assert access.has("spark", Need(SUBSCRIBE, TOPIC, "orders"))
    assert access.has("spark", Need(SUBSCRIBE, TOPIC, "clicks-2"))
    assert access.has("spark", Need(SUBSCRIBE, GROUP, "etl"))
    assert not access.has("spark", Need(PUBLISH, TOPIC, "orders"))
    assert not access.has("spark", Need(SUBSCRIBE, TOPIC, "etl"))
    assert not access.has("spark", Need(SUBSCRIBE, GROUP, "orders"))
    assert not access.has("stranger", Need(SUBSCRIBE, TOPIC, "orders"))
    assert access.has_any("spark", TOPIC, "orders")
    assert not access.has_any("spark", TOPIC, "payments")


def test_a_rule_that_denies_takes_precedence(write):
    access = read_access(write(USERS))
    assert not access.has("spark", Need(SUBSCRIBE, TOPIC, "clicks-secret"))
    with pytest.raises(StorePermissionError, match="subscribe on the topic clicks-secret"):
        access.check("spark", Need(SUBSCRIBE, TOPIC, "clicks-secret"))


def test_the_right_admin_includes_all_rights_and_calls_on_the_whole_store(write):
    access = read_access(write(USERS))
    for right in (SUBSCRIBE, PUBLISH, ADMIN):
        assert access.has("root", Need(right, TOPIC, "orders"))
    assert access.has("root", Need(ADMIN, STORE))
    denied = '[[rules]]\nusers = ["root"]\ntopics = ["payments"]\ndeny = ["subscribe"]\n'
    access = read_access(write(USERS + denied))
    assert not access.has("root", Need(ADMIN, STORE))
    assert access.has("root", Need(PUBLISH, TOPIC, "payments"))


def test_a_signature_with_a_wrong_secret_or_of_an_unknown_user_is_rejected(write):
    import hmac

    access = read_access(write(USERS))
    right = hmac.digest(b"spark's secret", b"now", "sha1")
    access.check_signature("spark", b"now", right)
    for user, signature in (("spark", b""), ("root", right), ("stranger", right)):
        with pytest.raises(NotAuthenticatedError) as caught:
            access.check_signature(user, b"now", signature)
        assert caught.value.code == "UNAUTHENTICATED"
        assert "secret" not in caught.value.message


def test_repr_hides_the_secrets(write):
    assert "'s secret" not in repr(read_access(write(USERS)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no table of users"),
        ("[user.a]\nsecret = 'long enough'", "'users'|users?"),
        ("[users.a]\nsecret = 'short'", "8 characters"),
        ("[users.a]\nsecert = 'long enough'", "Did you mean secret?"),
        ("[users]\na = 1", "is not a table"),
        ("users = [", "not valid TOML"),
        (USERS.replace('"subscribe"', '"subscirbe"', 1), "Did you mean subscribe?"),
        (USERS.replace('["spark"]', '["sprak"]', 1), "Did you mean spark?"),
        (USERS.replace("allow", "alow", 1), "Did you mean allow?"),
        (USERS.replace('["etl"]', '"etl"', 1), "list of strings"),
        (USERS.replace('deny = ["subscribe"]', "", 1), "is incomplete"),
    ],
)
def test_an_invalid_users_file_is_rejected_with_the_reason(write, text, expected):
    with pytest.raises(OptionError) as caught:
        read_access(write(text))
    assert caught.value.code == "BROKER_USERS"
    assert any(each in str(caught.value) for each in expected.split("|"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to any group")
@pytest.mark.parametrize("mode", [0o640, 0o620])
def test_a_group_may_read_a_file_of_secrets_only_if_the_process_belongs_to_it(
    write, monkeypatch, mode
):
    """In Kubernetes, the group of a volume is a supplementary group of the process."""
    path = write(USERS, mode=mode)
    os.chown(path, -1, 54321)
    with pytest.raises(OptionError, match="the group 54321") as caught:
        read_access(path)
    assert caught.value.code == "BROKER_USERS"
    with monkeypatch.context() as patch:
        patch.setattr(os, "getgroups", lambda: [10, 54321])
        read_access(path)
    os.chown(path, -1, os.getegid())
    read_access(path)


def test_a_users_file_that_others_can_read_is_rejected(write):
    with pytest.raises(OptionError, match="chmod 600") as caught:
        read_access(write(USERS, mode=0o644))
    assert caught.value.code == "BROKER_USERS"


def test_a_changed_file_is_reloaded_and_an_invalid_file_is_ignored(write, monkeypatch, caplog):
    monkeypatch.setattr(files, "_LOOK_S", -1)
    watched = watch_access(write(USERS))
    before = watched.current()
    write(USERS.replace("orders", "returns"))
    assert watched.current().has("spark", Need(SUBSCRIBE, TOPIC, "returns"))
    assert before.has("spark", Need(SUBSCRIBE, TOPIC, "orders"))
    with caplog.at_level(logging.ERROR):
        write(USERS.replace("allow", "alow"))
        assert watched.current().has("spark", Need(SUBSCRIBE, TOPIC, "returns"))
    assert "remains in use" in caplog.text
    assert "Did you mean allow?" in caplog.text


def test_a_changed_file_that_could_not_be_read_is_read_again(write, monkeypatch, caplog):
    monkeypatch.setattr(files, "_LOOK_S", -1)
    watched = watch_access(write(USERS))
    write(USERS.replace("orders", "returns"))
    with monkeypatch.context() as limit:

        def fail(path):
            raise OSError(24, "Too many open files")

        limit.setattr(files.Path, "read_bytes", fail)
        for _ in range(3):
            assert watched.current().has("spark", Need(SUBSCRIBE, TOPIC, "orders"))
    assert len([one for one in caplog.records if "remains in use" in one.message]) == 1
    assert watched.current().has("spark", Need(SUBSCRIBE, TOPIC, "returns"))
