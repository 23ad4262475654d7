"""Key pairs of the lab VM: of whoever starts it, and of the machine itself. Made at each start, kept nowhere else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

CLIENT_KEY, HOST_KEY, AUTHORIZED = "client-key", "host-key", "authorized-keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Files of a start's keys. `authorized` is the client's public key in the form of authorized_keys."""

    client: Path
    host: Path
    authorized: Path


def keys_in(directory: Path) -> Keys:
    """The keys that `make_keys` put into a directory."""
    return Keys(
        client=directory / CLIENT_KEY,
        host=directory / HOST_KEY,
        authorized=directory / AUTHORIZED,
    )


def make_keys(directory: Path) -> Keys:
    """Make both key pairs (Ed25519, RFC 8032) in files that nobody else may read."""
    keys = keys_in(directory)
    client = Ed25519PrivateKey.generate()
    _write(keys.client, _private(client))
    _write(keys.host, _private(Ed25519PrivateKey.generate()))
    public = client.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write(keys.authorized, public + b" testbed\n")
    return keys


def _private(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
        file.write(content)
