"""The frames that films are made of, before they are encoded: a film does not tell single bits apart."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sparring.env_worker.episode.film_file import Mp4File
from sparring.protos.tensor import Array


def encoded_frames(monkeypatch: pytest.MonkeyPatch) -> Mapping[Mp4File, list[Array]]:
    """Returns what is added to each film from now on."""
    added: dict[Mp4File, list[Array]] = {}
    add = Mp4File.add

    def noted(file: Mp4File, frame: Array) -> None:
        added.setdefault(file, []).append(frame.copy())
        add(file, frame)

    monkeypatch.setattr(Mp4File, "add", noted)
    return added
