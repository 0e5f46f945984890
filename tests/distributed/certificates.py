"""Certificates for the tests of encrypted connections, signed by authorities of their own."""

import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from altbi.distributed import TLS


def write_key(path, key, password=None):
    encryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    encoding, format_ = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(encoding, format_, encryption))
    return str(path)


def write_certificate(path, name, key, issuer, issuer_key):
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, issuer)]
    today = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(names[0])
        .issuer_name(names[1])
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - dt.timedelta(days=1))
        .not_valid_after(today + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=name == issuer, path_length=None), critical=True)
        .sign(issuer_key, hashes.SHA256())
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return str(path)


def write_files(folder, authority="authority"):
    """Write the files of an authority, and of a machine that it trusts; return their paths."""
    folder.mkdir()
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = write_certificate(folder / "ca.pem", authority, authority_key, authority, authority_key)
    cert = write_certificate(folder / "cert.pem", "machine", key, authority, authority_key)
    write_key(folder / "secret.pem", key, b"password")
    return TLS(ca, cert, write_key(folder / "key.pem", key))
