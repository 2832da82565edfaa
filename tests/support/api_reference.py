"""Writes the public names as HTML pages, with pdoc: `api_reference.py FOLDER`."""

import importlib
import sys
from pathlib import Path

import pdoc

PACKAGES = ("pyrocket", "pyrocket.client", "pyspark_pyrocket")
MODULES = (
    "pyrocket.errors",
    "pyrocket.testing",
    "pyrocket.tools.notebook",
)


def main(folder):
    for name in PACKAGES:
        package = importlib.import_module(name)
        # Public names are imported on first use; pdoc documents only names that are already
        # imported.
        vars(package).update({public: getattr(package, public) for public in package.__all__})
    # The sections of docstrings, such as `Attributes:`, become lists.
    pdoc.render.configure(docformat="google")
    pdoc.pdoc(*PACKAGES, *MODULES, output_directory=Path(folder))


if __name__ == "__main__":
    main(sys.argv[1])
