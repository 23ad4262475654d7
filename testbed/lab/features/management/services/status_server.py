"""Asking a RADIUS server whether it is there (Status-Server, RFC 5997), and saying so to who came in by the key.

Run as a program by sshd's PAM on a switch (`testbed.lab.features.management.services.aaa`), it stands on nothing but
Python's own library. Arguments: the file of pam_radius_auth, which has the server and the secret, and the log in which
it is noted.
"""

import hashlib
import hmac
import secrets
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path

TIMEOUT_S = 1.0
_HEADER = struct.Struct("!BBH16s")
_STATUS_SERVER, _ACCESS_ACCEPT = 12, 2
_MESSAGE_AUTHENTICATOR = b"\x50\x12"
"""Its type (80) and length (RFC 3579, section 3.2); 16 bytes follow."""


def server_answers(address: str, port: int, secret: str) -> bool:
    """Tell whether the server answers who has the secret, from the calling thread's network namespace."""
    number, authenticator = secrets.randbelow(256), secrets.token_bytes(16)
    head = _HEADER.pack(_STATUS_SERVER, number, _HEADER.size + 18, authenticator) + _MESSAGE_AUTHENTICATOR
    signed = head + hmac.new(secret.encode(), head + bytes(16), "md5").digest()
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asking:
        asking.settimeout(TIMEOUT_S)
        asking.connect((address, port))
        asking.send(signed)
        answer = asking.recv(4096)
        # The response authenticator, RFC 2865, section 3: over the answer with the request's in its place.
        proof = hashlib.md5(answer[:4] + authenticator + answer[_HEADER.size :] + secret.encode()).digest()
        return answer[:2] == bytes((_ACCESS_ACCEPT, number)) and hmac.compare_digest(proof, answer[4 : _HEADER.size])
    return False


def main() -> None:
    configuration, log = sys.argv[1:]
    server, secret = Path(configuration).read_text().split()[:2]
    address, _, port = server.rpartition(":")
    if not server_answers(address, int(port), secret):
        said = f"break-glass: in by the lab's key, while the authentication server {address} does not answer"
        print(said)
        with open(log, "a") as file:  # noqa: PTH123
            file.write(f"{said}\n")


if __name__ == "__main__":
    main()
