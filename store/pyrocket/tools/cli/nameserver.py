"""`pyrocket nameserver`: show clients which brokers have which topics."""

import os
from typing import Any

import click

from pyrocket.broker.settings import load
from pyrocket.tools.cli.broker import given_flags, setting_options
from pyrocket.tools.cli.frame import OK, exits, fail
from pyrocket.tools.cli.logs import write_logs

_LISTEN = "127.0.0.1:9876"
_SETTINGS = (
    *("listen", "tls_certificate", "tls_key", "users", "signature_age", "insecure"),
    *("log_format", "log_level", "drain"),
)


@click.command()
@setting_options(_SETTINGS, listen=_LISTEN)
@exits
def nameserver(**given: Any) -> int:
    """Serve the routes of registered brokers until SIGTERM or Ctrl-C.

    Brokers register with --nameserver. Nothing is stored: after a restart, the brokers register
    again within seconds.
    """
    settings = load({"listen": _LISTEN, **given_flags(given)}, {})
    # By default gRPC writes several lines to standard error if it cannot bind an address.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from pyrocket.server.nameserver.process import serve
    except ModuleNotFoundError as error:
        remedy = "Run: pip install '.[broker]' in the checkout of pyrocket."
        fail("COMMAND", f"nameserver needs {error.name}.", remedy, as_json=False)
    write_logs(settings.log_format, settings.log_level)
    serve(settings)
    return OK
