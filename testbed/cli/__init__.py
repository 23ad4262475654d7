"""The command line."""


def main() -> None:
    """Carry out the command line of this process, and end with its exit code."""
    from testbed.base.quick_start import start_quickly

    start_quickly()
    from testbed.cli.app import main as carry_out

    try:
        carry_out()
    except SystemExit as ended:
        from testbed.cli.signals import leave

        leave(ended)


__all__ = ["main"]
