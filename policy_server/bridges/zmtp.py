"""ZeroMQ's wire, ZMTP 3.0, as far as questions and answers need it: greetings, frames, pings; no encryption.

libzmq limits the bytes of a frame, and not how many frames a message has, and takes them off a connection before
anybody sees them: whoever is at its other end, with a token or without, could fill the memory. Nor does it count
connections. So both ends are spoken here, with messages of two frames: an empty one, and the content.
"""

from __future__ import annotations

from typing import Final

from sparring.policy_server.bridges.arrays import BadMessage

MORE, COMMAND = 1, 4
GREETING: Final = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
MOST_COMMAND: Final = 1024
"""Bytes of what a peer says of itself, and of pings."""
_LONG: Final = 2
_MECHANISM: Final = slice(12, 32)
_OLDEST: Final = 3
_READY: Final = b"\x05READY"
_PING, _PONG = b"\x04PING", b"\x04PONG"
_PINGS_TIME: Final = 2
"""Bytes after the name: for how long it is good, which only who asks needs to know."""


def check_greeting(said: bytes) -> None:
    """Checks what comes first on a connection, as long as our greeting.

    Raises:
        BadMessage: If it is somebody else who speaks, or he wants encryption.
    """
    if said[0] != GREETING[0] or not said[9] & 1 or said[10] < _OLDEST:
        raise BadMessage("the greeting of somebody who does not speak ZeroMQ 3.")
    if said[_MECHANISM] != GREETING[_MECHANISM]:
        raise BadMessage("the greeting of somebody who wants encryption, which there is not.")


def ready(kind: str) -> bytes:
    """Returns the command that says what kind of a socket we are."""
    name = kind.encode()
    said = b"\x0bSocket-Type" + len(name).to_bytes(4, "big") + name + b"\x08Identity\x00\x00\x00\x00"
    return frame(COMMAND, _READY + said)


def check_ready(flags: int, said: bytes) -> None:
    """Checks the command that a peer says about itself.

    Raises:
        BadMessage: If it is another one, or none.
    """
    if not flags & COMMAND or not said.startswith(_READY):
        raise BadMessage("no word of what is at the other end.")


def frame(flags: int, content: bytes) -> bytes:
    """Returns a frame."""
    return _head(flags, len(content)) + content


def message(content: bytes) -> bytes:
    """Returns the two frames of a question or an answer."""
    return b"".join((frame(MORE, b""), _head(0, len(content)), content))  # it may be large, and is copied once


def _head(flags: int, size: int) -> bytes:
    return bytes([flags, size]) if size < 256 else bytes([flags | _LONG]) + size.to_bytes(8, "big")


def length_of_size(flags: int) -> int:
    """Returns how many bytes say how long a frame is, after its flags.

    Raises:
        BadMessage: If there are no such flags.
    """
    if flags & ~(MORE | _LONG | COMMAND):
        raise BadMessage("a frame that this wire does not have.")
    return 8 if flags & _LONG else 1


def size_of(flags: int, said: bytes, most: int) -> int:
    """Returns how many bytes come in a frame.

    Args:
        flags: Of the frame.
        said: What comes after them, of the length that they have.
        most: That a frame of a message may have.

    Raises:
        BadMessage: If it has more.
    """
    size, most = int.from_bytes(said, "big"), MOST_COMMAND if flags & COMMAND else most
    if size > most:
        raise BadMessage(f"a frame of {size} bytes; {most} are the most.")
    return size


def check_first(flags: int, size: int) -> None:
    """Checks the first frame of a message: it has nothing in it, and another one comes.

    Raises:
        BadMessage: If it is another one.
    """
    if size or not flags & MORE:
        raise BadMessage("a message that is no question and no answer: nothing stands before it.")


def check_second(flags: int) -> None:
    """Checks the frame that has the content: it is the last one.

    Raises:
        BadMessage: If there are more.
    """
    if flags & MORE:
        raise BadMessage("a message in several parts.")


def pong(command: bytes) -> bytes:
    """Returns what is to be sent for a command; nothing, if it is no ping."""
    return frame(COMMAND, _PONG + command[len(_PING) + _PINGS_TIME :]) if command.startswith(_PING) else b""
