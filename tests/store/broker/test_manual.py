"""The settings and the example in `store/BROKER.md` match the code."""

import re

from pyrocket.broker.access import Need, read_access
from support.broker_manual import PAGE, in_page, rendered


def test_the_table_of_settings_matches_the_code():
    assert in_page() == rendered(), "run: python tests/support/broker_manual.py --write"


def test_the_example_of_users_and_rights_is_valid(tmp_path):
    text = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    path = tmp_path / "users.toml"
    path.touch(0o600)
    path.write_text(text)
    access = read_access(str(path))
    assert access.has("spark", Need("publish", "topic", "clicks-1"))
    assert not access.has("spark", Need("subscribe", "topic", "clicks-private"))
    assert access.has("admin", Need("admin", "store"))
