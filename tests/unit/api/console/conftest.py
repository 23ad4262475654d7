"""A certificate for tests of the console."""

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from testbed.api.console.listening import Tls


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    """A certificate for lab.example and 192.0.2.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lab")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("Lab.example"), x509.IPAddress(IPv4Address("192.0.2.1"))])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    certificate = made.add_extension(names, critical=False).sign(key, hashes.SHA256())
    (tmp_path / "c.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (tmp_path / "k.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return Tls(certificate=tmp_path / "c.pem", key=tmp_path / "k.pem")
