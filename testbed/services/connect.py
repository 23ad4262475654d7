"""What `ssh_config` has ssh run (ProxyUseFdpass of ssh_config(5)): connect, hand the socket over, and end.

Arguments: host and port. Its standard output is a Unix socket of ssh's. It stands on nothing but Python's own library,
and starts in a hundredth of a second.
"""

import socket
import sys


def main() -> None:
    host, port = sys.argv[1:]
    with socket.create_connection((host, int(port))) as found, socket.socket(fileno=sys.stdout.fileno()) as asking:
        socket.send_fds(asking, [b"\0"], [found.fileno()])


if __name__ == "__main__":
    main()
