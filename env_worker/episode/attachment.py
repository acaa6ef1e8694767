"""What is made of an episode while it is played, and goes with its result: a film, a recording."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from sparring.env_worker.episode.observers import EpisodeObserver
from sparring.protos.pieces import AttachmentMissing


class Attachment(EpisodeObserver, ABC):
    """Makes a file of an episode. One that cannot be made is given up: the episode goes on, and counts."""

    def __init__(self) -> None:
        self.file: BinaryIO | None = None
        """When the episode has ended; None if there is none."""
        self.missing = ""
        """Why there is none, in a sentence."""

    @abstractmethod
    def close(self) -> None:
        """Frees the disk."""

    @contextmanager
    def _or_missing(self) -> Iterator[None]:
        """Gives the file up where what is done inside says that it cannot be had."""
        try:
            yield
        except AttachmentMissing as error:
            self.missing = error.sentence
            self.close()
