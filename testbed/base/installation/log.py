"""The file that keeps the words of apt, pip and compilers."""

from __future__ import annotations

import re
from pathlib import Path

from testbed.base.installation.errors import say

TYPE_CHECKING = False  # without the time that importing typing takes
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

MOST_BYTES = 1_000_000
END_LINES = 15
_NO_NETWORK = re.compile(
    r"temporary failure|could not resolve|network is unreachable|connection (timed out|refused)|NewConnectionError"
    r"|NameResolution",
    re.IGNORECASE,
)


class Log:
    """The file that takes what programs print; it is emptied when it has grown too long."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self) -> None:
        """Make the file where it is missing. Raises `OSError` where it cannot be written."""
        with self.path.open("a") as file:
            if file.tell() > MOST_BYTES:
                file.truncate(0)

    def run(self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None) -> int:
        """Run a program whose words are kept here; return its exit code, 127 where it is missing."""
        import subprocess

        with self.path.open("ab") as file:
            try:
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment
                )
            except OSError as error:
                file.write(f"{error}\n".encode())
                return 127
            return finish(process)

    def show_end(self) -> None:
        """Show the last lines to the user."""
        say(*self.path.read_text(errors="replace").splitlines()[-END_LINES:])

    def hint_at_the_network(self) -> str:
        """Say that the network is the reason where it seems so, or else where the whole log is."""
        if _NO_NETWORK.search(self.path.read_text(errors="replace")):
            return "the network cannot be reached: check the connection, DNS, and https_proxy where one is needed"
        return f"the whole log: {self.path}"


def finish(process: subprocess.Popen[bytes]) -> int:
    """Wait for a program that gets a Ctrl-C of the terminal, too: it ends as it wants to, and then we do."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise
