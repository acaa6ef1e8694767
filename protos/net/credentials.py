"""What encrypts connections, and shows who is at their ends: certificates and keys, as gRPC takes them."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc

from sparring.protos.errors import UsageError
from sparring.protos.net.access import check_certificate, read_ca


def server_credentials(
    cert: Path | None,
    key: Path | None,
    client_ca: Path | None = None,
    *,
    flags: tuple[str, str, str] = ("--tls-cert", "--tls-key", "--client-ca"),
) -> grpc.ServerCredentials | None:
    """Returns what a server encrypts connections over TCP with; None: it does not.

    Args:
        cert: Its certificate (chain), PEM.
        key: Of the certificate.
        client_ca: Clients must show a certificate that one of these has signed; None: they need none.
        flags: What these three are called.

    Raises:
        UsageError: If one of the files is missing, or they cannot be used.
    """
    cert_flag, key_flag, ca_flag = flags
    if cert is None and key is None:
        if client_ca is not None:
            raise UsageError(f"{ca_flag} is given without {cert_flag} and {key_flag}; it is for TLS.")
        return None
    if cert is None or key is None:
        given, missing = (key_flag, cert_flag) if cert is None else (cert_flag, key_flag)
        raise UsageError(f"{given} is given without {missing}; TLS needs both.")
    check_certificate(cert, key, flags=(cert_flag, key_flag))
    pair = (key.read_bytes(), cert.read_bytes())
    if client_ca is None:
        return grpc.ssl_server_credentials([pair])
    return grpc.ssl_server_credentials([pair], read_ca(client_ca, flag=ca_flag), require_client_auth=True)


def tls_context(cert: Path | None, key: Path | None, client_ca: Path | None = None) -> ssl.SSLContext | None:
    """Returns the same for servers that are none of gRPC's, of files that `server_credentials` has found right."""
    if cert is None or key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
