"""`python -m pyrocket`: the same commands as the script `pyrocket`."""

from pyrocket.tools.cli import main

if __name__ == "__main__":
    main(prog_name="pyrocket")
