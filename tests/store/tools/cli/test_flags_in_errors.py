"""Errors of commands name their flags."""

import re

from pyrocket import Store
from pyrocket.broker.access import read_access
from pyrocket.server.tls import Certificate
from support.broker import served
from support.certificates import write_certificate
from support.commands import run


def test_errors_name_flags_and_not_options_of_spark(tmp_path):
    pem, key = write_certificate(tmp_path)
    users = tmp_path / "users.toml"
    users.touch(0o600)
    users.write_text('[users.ana]\nsecret = "secret of ana"\n')
    access, certificate = read_access(str(users)), Certificate(str(pem), str(key))
    with (
        Store.open(tmp_path / "s", create=True) as store,
        served(store, access=lambda: access, certificate=certificate) as address,
    ):
        for flags, named in (
            (["--tls"], "--ca"),
            (["--ca", pem], "--access-key"),
            (["--ca", pem], "--secret-key-file"),
        ):
            error = run("topic", "list", "--endpoint", address, *flags).stderr
            assert f"`{named}`" in error
            assert not re.search("endpoint.ca|endpoint.tls|accessKey|secretKey", error)
