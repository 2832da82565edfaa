"""`python3 examples [NAME]`: sets up the environment and runs the main job, or the example NAME."""

import runpy
import sys
from pathlib import Path

import environment

if __name__ == "__main__":
    arguments = environment.ensure("examples", sys.argv[1:])
    folder = Path(__file__).resolve().parent
    named = bool(arguments) and (folder / f"{arguments[0]}.py").is_file()
    name = arguments.pop(0) if named else "flights"
    sys.argv[1:] = arguments
    runpy.run_path(str(folder / f"{name}.py"), run_name="__main__")
