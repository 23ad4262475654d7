"""The program that `ssh_config` has ssh run (ProxyUseFdpass of ssh_config(5)): connect, hand the socket over, and end.

Arguments: host and port. Its standard output is a Unix socket of ssh's. It stands on nothing but Python's own library,
and starts in a hundredth of a second.
"""

import socket
import sys

PATIENCE_S = 5.0


def main() -> int:
    host, port = sys.argv[1:]
    try:
        found = socket.create_connection((host, int(port)), PATIENCE_S)
    except OSError as error:
        why = error.strerror or error
        print(f"{host} port {port}: {why} (`testbed inspect services` tells whether sshd runs)", file=sys.stderr)
        return 1
    with found, socket.socket(fileno=sys.stdout.fileno()) as asking:
        found.setblocking(True)
        socket.send_fds(asking, [b"\0"], [found.fileno()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
