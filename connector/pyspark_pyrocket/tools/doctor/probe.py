"""Passed as text to the workers' Python: repeats Spark's look-up, and prints JSON.

Without an argument, it prints the modules that the look-up would import; with the name of a module,
it prints the outcome of importing that module.
"""

import importlib
import inspect
import json
import pkgutil
import sys


def list_modules() -> list[str]:
    """Return the top-level modules named pyspark_*, as Spark's look-up lists them."""
    return [module.name for module in pkgutil.iter_modules() if module.name.startswith("pyspark_")]


def look_up(module: str) -> dict[str, str]:
    """Return outcome and detail of importing one module as Spark's look-up does."""
    from pyspark.sql.datasource import DataSource

    try:
        imported = importlib.import_module(module)
        if not hasattr(imported, "DefaultSource"):
            return {"outcome": "none", "detail": "no DefaultSource"}
        source = imported.DefaultSource
        if not inspect.isclass(source):
            return {"outcome": "not a class", "detail": f"DefaultSource is {source!r:.200}"}
        if not issubclass(source, DataSource):
            detail = "DefaultSource is not a pyspark DataSource"
            return {"outcome": "not a source", "detail": detail}
        return {"outcome": "source", "detail": str(source.name())}
    except BaseException as error:
        return {"outcome": "raised", "detail": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    answer = look_up(sys.argv[1]) if sys.argv[1:] else list_modules()
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
