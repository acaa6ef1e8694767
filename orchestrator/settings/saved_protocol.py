"""The protocol of a part of a run, as settings keep it: whole, so that nothing has to be looked up again."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sparring.env_worker.protocol import WholeProtocol


class SavedProtocol(BaseModel):
    """A protocol with all its rules. In flags and files it is a name; `with_protocols` puts this in its place."""

    model_config = ConfigDict(extra="ignore", frozen=True, ser_json_inf_nan="constants")

    name: str
    version: int = Field(ge=1)
    benchmark: str
    sha256: str
    seed: int
    settings: dict[str, Any]
    rules: dict[str, Any]
    layout: str = ""
    conventions: dict[str, str] = {}

    @model_validator(mode="after")
    def _is_what_its_hash_says(self) -> SavedProtocol:
        if self.whole().sha256 != self.sha256:
            raise ValueError(f"the protocol {self.name!r} is not what its hash says")
        return self

    @classmethod
    def of(cls, protocol: WholeProtocol) -> SavedProtocol:
        """Makes it of a protocol."""
        return cls(name=protocol.name, version=protocol.version, sha256=protocol.sha256, **protocol.values)

    def whole(self) -> WholeProtocol:
        """Returns the protocol."""
        return WholeProtocol(**self.model_dump(exclude={"sha256"}))
