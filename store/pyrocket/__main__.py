"""`python -m pyrocket` and the script `pyrocket`."""


def main() -> None:
    """Run a command and exit. Ctrl-C also ends it while modules are imported, with 130."""
    try:
        from pyrocket.tools.cli import main as commands

        commands(prog_name="pyrocket")
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
