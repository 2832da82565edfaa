"""Python runs this module in every process whose PYTHONPATH contains this folder."""

import windows

windows.install()
