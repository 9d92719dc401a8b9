"""
Certificates for servers in tests: an authority of our own, made anew each time and believed by nobody else.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


class Authority:
    """Issues certificates; `file` is what a client has to believe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        certificate = self._begun(self._name, self._key, DAY).add_extension(constraints, critical=True)
        self.file = folder / "authority.pem"
        self.file.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))

    def serving(self, name: str, *, lasts: timedelta = DAY) -> ssl.SSLContext:
        """A server's context, with a certificate for this name or address."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            known: x509.GeneralName = x509.IPAddress(ip_address(name))
        except ValueError:
            known = x509.DNSName(name)
        begun = self._begun(x509.Name([]), key, lasts)
        certificate = begun.add_extension(x509.SubjectAlternativeName([known]), critical=True)
        file = self._folder / "server.pem"
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(secret + _pem(certificate.sign(self._key, hashes.SHA256())))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def believing(self) -> ssl.SSLContext:
        """A client's context that believes this authority."""
        return ssl.create_default_context(cafile=str(self.file))

    def _begun(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: timedelta) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + lasts)
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
