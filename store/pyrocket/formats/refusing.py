"""How a row of a batch is refused: named by its number, counted from 0."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.errors import MessageError

Rows = npt.NDArray[np.integer[Any]]
"""The row of each element of a flattened column."""


def refuse(
    bad: pa.BooleanArray, code: str, describe: Callable[[int], str], rows: Rows | None = None
) -> None:
    """Raise MessageError about the first true element of `bad`; `rows` maps elements to rows."""
    at = pc.index(bad, True).as_py()
    if at < 0:
        return
    row = at if rows is None else int(rows[at])
    raise MessageError(f"row {row} {describe(at)}.", remedy="Correct that row.", code=code)
