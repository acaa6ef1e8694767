"""YAML that anybody may have written: read as plain values, or refused; never an error of the reader's own."""

from __future__ import annotations

from typing import Any, Final

import yaml
from yaml.constructor import ConstructorError

_LONGEST_NUMBER: Final = 400
"""Characters. YAML reads 1:30:00 as a number of base 60, for which a long one takes the square of its length."""
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class _Loader(yaml.SafeLoader):
    def construct_object(self, node: Any, deep: bool = False) -> Any:
        if node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise ConstructorError(None, None, "it is too long for a number; text is in quotes", node.start_mark)
        try:
            return super().construct_object(node, deep=deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception as error:  # of a tag or a number that does not fit what it is given to
            raise ConstructorError(None, None, f"it cannot be read ({error!r})", node.start_mark) from error


def read_yaml(text: str) -> Any:
    """Returns what a text stands for.

    Raises:
        yaml.YAMLError: If it is no YAML, or means more than plain values.
        RecursionError: If it is nested too deep.
    """
    return yaml.load(text, _Loader)  # a safe one


def compose_yaml(text: str) -> Any:
    """Returns the nodes of a text, with their lines; None if there are none.

    Raises:
        As `read_yaml`.
    """
    return yaml.compose(text, _Loader)
