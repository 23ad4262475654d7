"""The service `gnmi`: every switch is a gNMI target, at its address of management.

A process on the server has the targets of all (`testbed.daemons.gnmi`), each listening in its switch's namespace, with
a certificate of the lab's own authority. Who asks gives a name and a password, which is made for the lab.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from testbed.base.files import write_atomically
from testbed.daemons.gnmi.configuration import (
    PASSWORD_FILE,
    PORT,
    GnmiConfiguration,
    TargetPort,
    TargetSwitch,
    certificate_file,
    key_file,
)
from testbed.lab.features.management.services.service import Place, ServiceOfSwitches, Surroundings

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY = "gnmi-ca.pem"
"""The certificate of the lab's authority, in the lab directory."""
_OWN_AUTHORITY, _AUTHORITY_KEY = "ca.pem", "ca.key"
_VALID = timedelta(days=3650)
"""As long as a lab may live; its authority goes with it."""
_LONGEST_NAME = 64
"""Characters of a common name (RFC 5280, ub-common-name)."""
_SKEW = timedelta(hours=1)
"""The clock of a client on another machine may be so far behind ours."""


class Gnmi(ServiceOfSwitches):
    name = "gnmi"
    needs = ("pygnmicli",)
    rereads = MappingProxyType({"gnmi.json": "gnmi"})
    # It enters the namespaces of all switches, reads the maps of their ports, and asks FRR's daemons, whose sockets are
    # another user's.
    capabilities = ("sys_admin", "net_admin", "net_raw", "bpf", "dac_override")

    def prepare(self, lab: Surroundings) -> None:
        directory = credentials(lab)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (directory / PASSWORD_FILE).exists():
            _write_secret(directory / PASSWORD_FILE, secrets.token_hex(32).encode())
        if not (directory / _OWN_AUTHORITY).exists():
            _make_authority(directory, lab.lab)
        for switch in lab.switches:
            _certify(directory, switch, lab.addresses[switch])

    def configuration(self, place: Place) -> GnmiConfiguration:
        return gnmi_configuration(place.lab)

    def told(self, place: Place, said: Mapping[str, Any]) -> str:
        return f"{said['switches']} switches at tcp/{PORT}, {said['calls']} calls"

    def for_people(self, lab: Surroundings) -> Mapping[str, str]:
        """Return the authority's certificate, by which a client knows each target."""
        return {AUTHORITY: (credentials(lab) / _OWN_AUTHORITY).read_text()}


def credentials(lab: Surroundings) -> Path:
    """Return where the password, the certificates and their keys are, for root alone."""
    return lab.directory / f".{Gnmi.name}"


def gnmi_configuration(lab: Surroundings) -> GnmiConfiguration:
    """Return what the process is told."""
    return GnmiConfiguration(
        lab=lab.lab,
        credentials=credentials(lab),
        data_path=lab.data_path,
        switches=tuple(
            TargetSwitch(
                name=switch,
                namespace=lab.namespaces[switch],
                address=lab.addresses[switch],
                daemons=lab.run / switch if switch in lab.routing else None,
                ports=tuple(
                    TargetPort(
                        name=port.name,
                        ifindex=port.ifindex,
                        namespace=port.namespace,
                        mtu_bytes=port.mtu_bytes,
                        number=port.number,
                        queues=port.classes,
                    )
                    for port in lab.ports
                    if port.node == switch
                ),
            )
            for switch in lab.switches
        ),
    )


def _make_authority(directory: Path, lab: str) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    key = ec.generate_private_key(ec.SECP256R1())
    name = _named(f"gNMI of {lab}")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(name, key)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    _write_secret(directory / _AUTHORITY_KEY, _key_text(key))
    _write_certificate(directory / _OWN_AUTHORITY, builder.sign(key, SHA256()))


def _certify(directory: Path, switch: str, address: IPv4Address) -> None:
    """Make a key and a certificate of a switch, for its name and its address of management, in place of older ones."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority = x509.load_pem_x509_certificate((directory / _OWN_AUTHORITY).read_bytes())
    signing = load_pem_private_key((directory / _AUTHORITY_KEY).read_bytes(), password=None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{directory / _AUTHORITY_KEY} has another kind of key")
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName(switch), x509.IPAddress(address)])
    builder = (
        _builder(_named(switch), key)
        .issuer_name(authority.subject)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
    )
    _write_secret(directory / key_file(switch), _key_text(key))
    _write_certificate(directory / certificate_file(switch), builder.sign(signing, SHA256()))


def _named(common: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common[:_LONGEST_NAME])])


def _builder(subject: x509.Name, key: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALID)
    )


def _key_text(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    path.write_bytes(certificate.public_bytes(Encoding.PEM))


def _write_secret(path: Path, content: bytes) -> None:
    """Write a file for root alone, in place of an older one."""
    write_atomically(path, content, mode=0o600, durable=False)


SERVICE = Gnmi()
