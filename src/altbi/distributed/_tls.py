"""Encrypted connections to a Dask scheduler, and their errors."""

import socket
import ssl
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from altbi.errors import EngineError, import_extra, shorten

ENCRYPTED = "tls://"
HELP = "https://distributed.dask.org/en/stable/tls.html"


class TLS(NamedTuple):
    """The PEM files with which a client and a Dask scheduler trust each other.

    Scheduler and workers accept only clients whose certificate the same authority has signed.

    Parameters
    ----------
    ca : str or path
        Certificate of the authority that has signed the certificates of all machines.
    cert : str or path
        Certificate of this machine.
    key : str or path
        Private key of this certificate, without a password.

    Examples
    --------
    >>> from altbi.distributed import TLS, Dask
    >>> tls = TLS("ca.pem", "client.pem", "client-key.pem")
    >>> with Dask("tls://10.0.0.1:8786", tls=tls) as engine:  # doctest: +SKIP
    ...     altbi.detect("payments.parquet", "payments-altbi", engine=engine)
    """

    ca: str | PathLike[str]
    cert: str | PathLike[str]
    key: str | PathLike[str]


def create_local_security(distributed: Any) -> Any:  # noqa: ANN401 - distributed has no types
    """Return the settings of a cluster on this machine: TLS with a key made for this run.

    The key is only in memory, and in the workers that this process starts. Without the package
    cryptography, a `MissingExtraError` is raised.
    """
    import_extra("cryptography", extra="cluster")
    return distributed.Security.temporary()


def load_security(distributed: Any, address: str, tls: TLS | None) -> Any:  # noqa: ANN401
    """Return the settings of a connection to a scheduler, or None for an address without TLS.

    Without `tls`, those of Dask's configuration files are used. An `EngineError` is raised if an
    encrypted address has no settings, if another address has some, and for files that are missing
    or do not belong together.
    """
    if not address.startswith(ENCRYPTED):
        if tls is None:
            return None
        raise EngineError(
            f"{address}: TLS files were given, but the connection to this address is not "
            f"encrypted. Pass an address that starts with {ENCRYPTED}, or leave the files out."
        )
    if tls is None:
        security = distributed.Security()
        if security.tls_ca_file and security.tls_client_cert:
            return security
        raise EngineError(
            f"{address}: the connection is encrypted, but no certificates were given. Pass "
            "tls=TLS(ca, cert, key), or --tls-ca, --tls-cert and --tls-key."
        )
    _check_files(tls)
    ca, cert, key = (fspath(path) for path in tls)
    return distributed.Security(
        require_encryption=True, tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key
    )


def _check_files(tls: TLS) -> None:
    """Raise an `EngineError` if a file is unreadable, or if certificate and key do not match."""
    for name, path in tls._asdict().items():
        try:
            content = Path(path).read_bytes()
        except OSError as cause:
            raise EngineError(
                f"{fspath(path)}: the TLS file for {name!r} cannot be read ({cause.strerror}). "
                "Pass the path of a PEM file."
            ) from cause
        # OpenSSL would ask for the password on the terminal.
        if name == "key" and b"ENCRYPTED" in content:
            raise EngineError(
                f"{fspath(path)}: the key has a password, which is not supported. Pass a key "
                "without one, which only you can read."
            )
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        context.load_cert_chain(tls.cert, tls.key)
    except (ssl.SSLError, OSError, ValueError) as cause:
        files = ", ".join(fspath(path) for path in tls)
        raise EngineError(
            f"{files}: they are not a certificate authority, a certificate, and its key "
            f"({shorten(str(cause), 100)}). Pass three PEM files that belong together."
        ) from cause


def check_encryption(address: str, security: Any, seconds: float) -> None:  # noqa: ANN401
    """Raise an `EngineError` if a program answers at an encrypted address, but without TLS.

    `security` has the settings of the connection; nothing is checked if it is None. Dask would wait
    for twice its timeout. Other failures to connect within `seconds` are ignored: Dask meets them
    again.
    """
    if security is None:
        return
    host, _, port = address.removeprefix(ENCRYPTED).rpartition(":")
    context: ssl.SSLContext = security.get_connection_args("client")["ssl_context"]
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), seconds) as connection,
            context.wrap_socket(connection),
        ):
            pass
    except ssl.SSLCertVerificationError:
        return
    except ssl.SSLError as cause:
        raise EngineError(
            f"{address}: what answers there does not use TLS ({shorten(str(cause), 100)}). Start "
            f"the scheduler and the workers with --tls-ca-file, --tls-cert and --tls-key ({HELP})."
        ) from cause
    except OSError:
        return


def build_connection_error(address: str | None, cause: Exception, resume: str) -> EngineError:
    """Build the error that there is no connection to the scheduler; None means this machine.

    `resume` is the last sentence of the message.
    """
    if isinstance(cause.__cause__, ssl.SSLError) or "TLS" in str(cause):
        return EngineError(
            f"{address}: the scheduler and this client do not accept each other's certificates. "
            f"Pass files that the same authority has signed ({HELP}). {resume}"
        )
    is_encrypted = (address or "").startswith(ENCRYPTED)
    example = "tls://10.0.0.1:8786" if is_encrypted else "tcp://10.0.0.1:8786, or tls:// with TLS"
    return EngineError(
        f"{address or 'this machine'}: no Dask scheduler answers. Expected an address such as "
        f"{example}, where `dask scheduler` runs. {resume}"
    )
