"""Which pyspark this needs, and one line that says so where another one is installed."""

from importlib.util import find_spec
from typing import NoReturn

NEEDED = "pyrocket needs pyspark 4.2 or newer"


def missing_pyspark(error: ImportError) -> type:
    """Return a class to stand in for the source; using it says which pyspark is needed."""
    reason = f"{NEEDED} (importing its data source API failed: {error})"

    class MissingSource:
        """Stands in for the source where pyspark has no Python data sources."""

        @classmethod
        def name(cls) -> str:
            """Return the name of the format."""
            return "pyrocket"

        def __init__(self, options: object = None) -> None:
            _refuse(reason)

    return MissingSource


def require_pyspark() -> None:
    """Raise UnsupportedError unless this pyspark plans rate limits and checks Arrow schemas.

    Looks for the feature, not for a version: vendors back-port.
    """
    if find_spec("pyspark.sql.streaming.datasource") is None:
        import pyspark

        _refuse(f"{NEEDED} (this is {pyspark.__version__})")


def _refuse(reason: str) -> NoReturn:
    from pyrocket.errors import UnsupportedError

    raise UnsupportedError(
        f"{reason}.", remedy="Run: pip install 'pyspark>=4.2'.", code="UNSUPPORTED_PYSPARK"
    )
