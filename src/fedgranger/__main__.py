"""The `fedgranger` command, also `python -m fedgranger`."""

from fedgranger.cli.interrupts import end_at_once, leave, watch_over


def main() -> None:
    """Run the command line; from the first line on Ctrl-C is one sentence."""
    watch_over()
    from fedgranger.cli.app import app

    try:
        app(prog_name="fedgranger")
    except SystemExit as done:
        leave(done.code)
    except KeyboardInterrupt:  # before a command was found
        end_at_once()


if __name__ == "__main__":
    main()
