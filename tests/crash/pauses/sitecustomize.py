"""Python runs this in every process of a job whose PYTHONPATH contains this folder."""

import windows

windows.install()
