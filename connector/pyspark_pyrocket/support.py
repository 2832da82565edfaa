"""Checks that the installed pyspark is recent enough."""

from importlib.util import find_spec
from typing import NoReturn

NEEDED = "pyrocket needs pyspark 4.2 or newer"


def missing_pyspark(error: ImportError) -> type:
    """Return a substitute for the data source class; creating an instance raises the error."""
    reason = f"{NEEDED} (importing its data source API failed: {error})"

    class MissingSource:
        """Replaces the data source if pyspark has no Python data source API."""

        @classmethod
        def name(cls) -> str:
            """Return the name of the format."""
            return "pyrocket"

        def __init__(self, options: object = None) -> None:
            _refuse(reason)

    return MissingSource


def require_pyspark() -> None:
    """Raise UnsupportedError unless pyspark supports rate limits and checks Arrow schemas.

    Tests for the features instead of the version, because vendors backport features.
    """
    if find_spec("pyspark.sql.streaming.datasource") is None:
        import pyspark

        _refuse(f"{NEEDED} (this is {pyspark.__version__})")


def _refuse(reason: str) -> NoReturn:
    from pyrocket.errors import UnsupportedError

    raise UnsupportedError(
        f"{reason}.", remedy="Run: pip install 'pyspark>=4.2'.", code="UNSUPPORTED_PYSPARK"
    )
