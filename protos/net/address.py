"""Addresses as people write them: the one place that reads them."""

from __future__ import annotations

from sparring.protos.errors import UsageError


def is_port(text: str) -> bool:
    """Whether there can be such a port; gRPC would take 99999 for 34463, and say nothing."""
    return text.isdecimal() and int(text) <= 65535


def server_addresses(text: str) -> list[str]:
    """The servers of a comma-separated list, `HOST:PORT` or `unix:///path` each.

    Raises:
        UsageError: If one is neither, or is named twice.
    """
    addresses = [part.strip() for part in text.split(",")]
    for address in addresses:
        if not _is_address(address):
            raise UsageError(f"{address!r} is not the address of a server: give HOST:PORT (or unix:///path).")
        if addresses.count(address) > 1:
            raise UsageError(f"the server {address} is named twice in {text!r}.")
    return addresses


def host_and_port(text: str) -> tuple[str, int]:
    """Of `HOST:PORT`, or `:PORT` for every address of this machine.

    Raises:
        UsageError: If it is neither.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not is_port(port):
        raise UsageError(f"{text!r} is not HOST:PORT or :PORT.")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)


def _is_address(address: str) -> bool:
    if address.startswith("unix:"):
        return len(address.removeprefix("unix:").strip("/")) > 0
    host, _, port = address.rpartition(":")
    return bool(host) and is_port(port)
