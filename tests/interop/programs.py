"""Runs the Java programs that compute expected values: one line of output per line of input."""

import base64
import subprocess


def run(classes, program, lines):
    """Return the program's answers to `lines`; `classes` is the class path."""
    done = subprocess.run(
        ["java", "-Xmx256m", "-Dfile.encoding=UTF-8", "-cp", classes, program],
        input="".join(f"{line}\n" for line in lines),
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.split("\n")[:-1]


def encode(text):
    return base64.b64encode(text.encode()).decode()


def decode(word):
    return base64.b64decode(word).decode()
