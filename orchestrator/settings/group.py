"""What every group of settings is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from sparring.protos.errors import UsageError


def _listed(value: Any) -> Any:
    """Reads a list, as a file may have it, as what a flag has: its items with commas in between."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return value


Listed = Annotated[str, BeforeValidator(_listed)]
"""Names with commas in between; in a file, a list of them will do."""


class SettingsGroup(BaseModel):
    """Settings that belong together: one field is one flag and one YAML key, by its alias if it has one."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


def check_text(read: Callable[[str], object], text: str) -> None:
    """Reads a setting's text; what is wrong with it is a fault of that setting.

    Raises:
        ValueError: With the sentence of what could not be read.
    """
    try:
        read(text)
    except UsageError as error:
        raise ValueError(error.sentence.removesuffix(".")) from error
