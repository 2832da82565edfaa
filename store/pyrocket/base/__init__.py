"""What every other package may use: clocks, settings, checks of arguments, threads, versions.

`lazy_names` imports public names when they are first used, so that importing a package is fast.
"""

import ast
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package.

    The imports in the package's stub, `__init__.pyi`, are its public names and their modules.
    """
    stub = ast.parse(pkgutil.get_data(package, "__init__.pyi") or b"")
    homes = {
        alias.asname or alias.name: (str(node.module), alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    public = sorted(name for name in homes if not name.startswith("_"))

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = homes[name]
        return getattr(importlib.import_module(module), original)

    def names() -> list[str]:
        return sorted({*vars(importlib.import_module(package)), *homes})

    return get, names, public
