"""Fetches the artifacts of a version of RocketMQ from Maven Central with `pom.xml`.

The only Java sources of the project are in `java/`.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
VERSIONS = {"4.9": "rocketmq4", "5.5": "rocketmq5"}
"""Profiles in `pom.xml`."""

CLASSPATH_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"


class UnavailableError(Exception):
    """Java, Maven or an artifact is not available."""


def class_path(version, cache):
    """Return the class path of a version, including the compiled classes of `java/`. Raises
    UnavailableError.
    """
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise UnavailableError(f"{tool} is not installed")
    sources = [HERE / "pom.xml", *sorted((HERE / "java").glob("*.java"))]
    stamp = hashlib.sha1(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    folder = Path(cache) / f"{version}-{stamp}"
    listing = folder / "classpath"
    if not listing.exists() or not all(map(os.path.exists, listing.read_text().split(":"))):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        fetch(HERE / "pom.xml", folder / "jars", f"-P{VERSIONS[version]}")
        jars = (folder / "jars").read_text().strip()
        classes = folder / "classes"
        call("javac", "-nowarn", "-cp", jars, "-d", classes, *sources[1:])
        listing.write_text(f"{classes}:{jars}")
    return listing.read_text()


def fetch(pom, listing, *options):
    """Fetch and list the artifacts in a POM with Maven, in at most two attempts."""
    goal = ["mvn", "-B", "-q", "-f", pom, *options, CLASSPATH_GOAL, f"-Dmdep.outputFile={listing}"]
    try:
        call(*goal, "-o")
    except UnavailableError:
        call(*goal)


def call(*command, cwd=None):
    command = list(map(str, command))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600, check=False, cwd=cwd
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{command[0]} did not finish within 10 minutes") from None
    if done.returncode:
        raise UnavailableError(f"{command[0]} failed: {(done.stdout + done.stderr)[-500:]}")
