"""Python runs this in every process of a job whose PYTHONPATH holds this folder."""

import windows

windows.install()
