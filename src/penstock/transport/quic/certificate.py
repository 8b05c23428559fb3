"""The certificate of a QUIC server: a configured one, or a self-signed one, generated once and kept.

No authority vouches for a self-signed certificate; clients trust its fingerprint, or its file.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import ipaddress
import os
import socket
import tempfile
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

YEARS: Final = 10
CERTIFICATE: Final = "felix.crt"
KEY: Final = "felix.key"
MAX_FILE: Final = 1 << 20


class CertificateUnusable(Exception):
    """The text names the file, the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate chain in PEM, with the server's certificate first, and its key."""

    chain: bytes
    key: bytes
    path: str  # of the chain's file
    names: tuple[str, ...]
    until: datetime.datetime
    fingerprint: str  # SHA-256 of the server's certificate, in hex


def load(chain_path: str, key_path: str, now: datetime.datetime) -> Certificate:
    """The certificate and key in these files, checked. Raises CertificateUnusable."""
    chain, key = read(chain_path), read(key_path)
    shown = show(chain, chain_path)
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError) as error:
        raise CertificateUnusable(f"{key_path} is no private key in PEM without a pass phrase: {error}") from None
    if not isinstance(private, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey):
        raise CertificateUnusable(f"{key_path}: a key of this kind cannot be used; take P-256, RSA or Ed25519")
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    form = serialization.Encoding.DER
    theirs = x509.load_pem_x509_certificate(chain).public_key()
    if private.public_key().public_bytes(form, public) != theirs.public_bytes(form, public):
        raise CertificateUnusable(f"{key_path} is not the key of the certificate in {chain_path}")
    if shown.until <= now:
        raise CertificateUnusable(
            f"the certificate in {chain_path} was valid until {shown.until:%Y-%m-%d %H:%M} UTC. Put another one there; "
            "one that Penstock has made itself is made again when both files are gone, with a new fingerprint"
        )
    plain = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Certificate(chain, plain, chain_path, shown.names, shown.until, shown.fingerprint)


def show(chain: bytes, path: str) -> Certificate:
    """The properties of a certificate that need no key. Raises CertificateUnusable."""
    try:
        certificate = x509.load_pem_x509_certificate(chain)
        names = _names(certificate)
        until = certificate.not_valid_after_utc
    except (ValueError, x509.DuplicateExtension) as error:
        raise CertificateUnusable(f"{path} holds no certificate in PEM: {error}") from None
    digest = hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()
    return Certificate(chain, b"", path, names, until, digest)


def is_authority(chain: bytes) -> bool:
    """True if the first certificate may sign others; otherwise it must be the server's itself. Raises
    CertificateUnusable."""
    try:
        certificate = x509.load_pem_x509_certificate(chain)
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False
    except ValueError as error:
        raise CertificateUnusable(f"no certificate in PEM: {error}") from None


def kept(directory: str, now: datetime.datetime) -> Certificate:
    """The certificate in this directory, generated if there is none. Raises CertificateUnusable or OSError."""
    chain_path, key_path = paths(directory)
    there = [os.path.exists(path) for path in (chain_path, key_path)]
    if there[0] and not there[1]:
        raise CertificateUnusable(f"{key_path} is missing, the key of {chain_path}. Put it back, or remove both")
    if not there[0]:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        chain, key = make(now, socket.gethostname())
        _write(key_path, key, 0o600)  # the key first: a certificate without a key would prevent the next start
        _write(chain_path, chain, 0o644)
    return load(chain_path, key_path, now)


def paths(directory: str) -> tuple[str, str]:
    return os.path.join(directory, CERTIFICATE), os.path.join(directory, KEY)


def make(now: datetime.datetime, host: str) -> tuple[bytes, bytes]:
    """A new self-signed certificate for this machine and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Penstock")])
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")]
    if host and host != "localhost" and host.isascii() and "_" not in host:
        names.append(x509.DNSName(host))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # tolerates clock skew
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), private


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = [str(address) for address in found.get_values_for_type(x509.IPAddress)]
    return (*found.get_values_for_type(x509.DNSName), *addresses)


def read(path: str) -> bytes:
    """The content of a file. Raises CertificateUnusable."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_FILE)
    except OSError as error:
        raise CertificateUnusable(f"{path} cannot be read: {error.strerror}") from None


def _write(path: str, data: bytes, mode: int) -> None:
    """Write atomically, with fsync."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
