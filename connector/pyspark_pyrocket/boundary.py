"""Shortens the tracebacks of errors that are raised to Spark, which prints every frame to the user.

The errors of `pyrocket.errors` are self-explanatory: they keep one frame of this package. With
PYROCKET_LOG_LEVEL=DEBUG in the environment, they keep all frames. Other exceptions always
keep all frames.
"""

import logging
from collections.abc import Callable, Iterator
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

from pyspark_pyrocket.worker import LOG

Class = TypeVar("Class", bound=type)


def called_by_spark(kind: Class) -> Class:
    """Decorate a class: errors of public methods, and of iterators they return, keep one frame."""
    for name, method in list(vars(kind).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(kind, name, _with_one_frame(method))
    return kind


def _with_one_frame(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = method(*args, **kwargs)
        except Exception as error:
            if _keeps_frames(error):
                raise
            raise error.with_traceback(None) from None
        return _rows(result) if isinstance(result, Iterator) else result

    return call


def _rows(rows: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from rows
    except Exception as error:
        if _keeps_frames(error):
            raise
        raise error.with_traceback(None) from None


def _keeps_frames(error: Exception) -> bool:
    # Imported late: Spark imports this module in every process, and that import must not fail.
    from pyrocket.errors import PyrocketError

    return not isinstance(error, PyrocketError) or LOG.isEnabledFor(logging.DEBUG)
