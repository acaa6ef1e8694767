"""Real certificates for the tests of TLS: a CA, and servers' certificates good and bad."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import trustme

from sparring.protos.net.access import Identity

TOKEN = "not-to-be-seen-anywhere-7e57"


def write_secret(path: Path, text: str) -> Path:
    """Writes a file that only its user can read."""
    path.write_text(text)
    path.chmod(0o600)
    return path


@dataclass(frozen=True)
class Certificates:
    """Files that a server and its clients would be given."""

    ca: Path
    """Signed all certificates here."""
    other_ca: Path
    """Signed none of them, but the stranger's."""
    token: Path
    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        authority = trustme.CA()
        files = cls(folder / "ca.pem", folder / "other-ca.pem", folder / "token", folder)
        authority.cert_pem.write_to_path(files.ca)
        other = trustme.CA()
        other.cert_pem.write_to_path(files.other_ca)
        write_secret(files.token, f"  {TOKEN}\n")
        for name, certificate in {
            "good": authority.issue_cert("localhost", "127.0.0.1"),
            "stranger": other.issue_cert("localhost", "127.0.0.1"),
            "elsewhere": authority.issue_cert("gpu-box.example"),
            "expired": authority.issue_cert("localhost", "127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC)),
        }.items():
            certificate.private_key_pem.write_to_path(folder / f"{name}.key")
            for part in certificate.cert_chain_pems:
                part.write_to_path(folder / f"{name}.pem", append=True)
        return files

    def serving(self, name: str = "good") -> tuple[str, str]:
        """The flags of a server."""
        return f"--tls-cert={self.folder / name}.pem", f"--tls-key={self.folder / name}.key"

    def pair(self, name: str = "good") -> tuple[Path, Path]:
        """A certificate and its key."""
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def identity(self, name: str = "good") -> Identity:
        """The same, as a client shows them."""
        cert, key = self.pair(name)
        return Identity(cert.read_bytes(), key.read_bytes())

    @property
    def guarding(self) -> str:
        """The flag of a server that wants the token."""
        return f"--token-file={self.token}"

    @property
    def trusted(self) -> bytes:
        """What a client in Python is given."""
        return self.ca.read_bytes()
