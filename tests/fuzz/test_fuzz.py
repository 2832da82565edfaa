"""With a coverage-guided fuzzer, every parser raises only documented errors, and neither crashes
nor hangs.

Needs Atheris (pip install '.[fuzz]'). PYROCKET_FUZZ_SECONDS: seconds for each parser, 120 by
default.
"""

import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec

import pytest
from fuzz.files import FOLDER, memory
from fuzz.run import CORPUS, TARGETS

SECONDS = int(os.environ.get("PYROCKET_FUZZ_SECONDS", "120"))
LONGEST_INPUT, LONGEST_RUN_S, MEGABYTES = 4096, 10, 4096


@pytest.mark.heavy
@pytest.mark.skipif(find_spec("atheris") is None, reason="needs atheris: pip install '.[fuzz]'")
@pytest.mark.parametrize("name", TARGETS)
def test_a_fuzzer_finds_no_undocumented_error(name, tmp_path):
    grown = tmp_path / "corpus"
    grown.mkdir()
    limits = [f"-max_total_time={SECONDS}", f"-max_len={LONGEST_INPUT}"]
    limits += [f"-timeout={LONGEST_RUN_S}", f"-rss_limit_mb={MEGABYTES}"]
    command = [sys.executable, "-m", "fuzz.run", name, str(grown), str(CORPUS / name), *limits]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        run = subprocess.run(
            [*command, f"-artifact_prefix={tmp_path}/"],
            env={**os.environ, "PYTHONPATH": path, FOLDER: folder},
            capture_output=True,
            text=True,
            timeout=SECONDS + 300,
        )
    assert run.returncode == 0, f"{' '.join(command)}\n{run.stdout[-3000:]}{run.stderr[-6000:]}"
    sys.stdout.write(f"{name}: {summary(run.stderr)}\n")


def summary(text):
    """Return one line with the number of executions, and the coverage at the start and at the
    end.
    """
    covered = re.findall(r"cov: (\d+)", text)
    done = re.findall(r"Done (\d+) runs in (\d+)", text)
    assert covered, text[-2000:]
    assert done, text[-2000:]
    return f"{done[-1][0]} runs in {done[-1][1]} s, coverage {covered[0]} → {covered[-1]}"
