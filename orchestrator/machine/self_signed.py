"""A certificate that is made for one run, and signs itself: whoever is handed it knows whom it talks to."""

from __future__ import annotations

import ipaddress
import re
import secrets
import subprocess
from typing import Final

from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError
from sparring.protos.net.access import Identity

_SECONDS: Final = 30.0
_DAYS: Final = 365
_SECTIONS: Final = """\
[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = a run of Sparring {unique}
[extensions]
basicConstraints = critical,CA:TRUE
subjectAltName = {names}
"""
# Not by -addext, which OpenSSL 1.0 does not know: it is what older clusters have.
_COMMAND: Final = (
    *("openssl", "req", "-x509", "-config", "/dev/stdin", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
    *("-nodes", "-sha256", "-days", str(_DAYS), "-keyout", "/dev/stdout"),
)
_PEM: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----\n.*?-----END \1-----\n", re.DOTALL)


def self_signed(host: str) -> Identity:
    """Makes a certificate for a name or number of this machine, and its key, which is never on a disk.

    Raises:
        SparringError: If it cannot be made.
    """
    advice = f"Install the openssl command, or give {Hint('listen_tls_cert')} and {Hint('listen_tls_key')}."
    try:
        made = subprocess.run(
            _COMMAND,
            # Of several that are trusted at once, one that has another's name is taken for a forgery of that.
            input=_SECTIONS.format(names=_alternative_name(host), unique=secrets.token_hex(8)).encode(),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparringError(f"no certificate can be made for this run: {error}. {advice}") from error
    blocks = {found[1]: found[0] for found in _PEM.finditer(made.stdout)}
    key = next((block for kind, block in blocks.items() if kind.endswith(b"PRIVATE KEY")), None)
    cert = blocks.get(b"CERTIFICATE")
    if made.returncode or key is None or cert is None:
        said = made.stderr.decode(errors="replace").strip() or f"exit code {made.returncode}"
        raise SparringError(f"no certificate can be made for this run; openssl says: {said}. {advice}")
    return Identity(cert, key)


def _alternative_name(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"
