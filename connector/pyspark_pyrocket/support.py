"""The pyspark that is required, and the error where another one is installed."""

from importlib.util import find_spec
from typing import NoReturn

NEEDED = "pyrocket needs pyspark 4.2 or newer"


def missing_pyspark(error: ImportError) -> type:
    """Return a class in place of the source; its use raises the error about pyspark."""
    reason = f"{NEEDED} (importing its data source API failed: {error})"

    class MissingSource:
        """Takes the place of the source where pyspark has no Python data sources."""

        @classmethod
        def name(cls) -> str:
            """Return the name of the format."""
            return "pyrocket"

        def __init__(self, options: object = None) -> None:
            _refuse(reason)

    return MissingSource


def require_pyspark() -> None:
    """Raise UnsupportedError unless this pyspark has rate limits and checks Arrow schemas.

    Checks for the feature, not for a version: vendors back-port.
    """
    if find_spec("pyspark.sql.streaming.datasource") is None:
        import pyspark

        _refuse(f"{NEEDED} (this is {pyspark.__version__})")


def _refuse(reason: str) -> NoReturn:
    from pyrocket.errors import UnsupportedError

    raise UnsupportedError(
        f"{reason}.", remedy="Run: pip install 'pyspark>=4.2'.", code="UNSUPPORTED_PYSPARK"
    )
