"""Whether sentences of different lengths may share a batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

log = logging.getLogger(__name__)

_SHORT: Final = "Go."
_LONG: Final = "Pick up the red mug that is on the table and put it on the plate."

_VERBS: Final = ("Pick up", "Push", "Open", "Close", "Turn", "Reach for", "Put away")
_THINGS: Final = ("the red mug", "a drawer with a handle", "the small blue box on the left", "the door", "every bowl")

SENTENCES: Final = (
    *(f"{_VERBS[i % 7]} {_THINGS[i % 5]}{'.' * (i % 2)}" for i in range(12)),
    _SHORT,
    _LONG,
    " ".join([_LONG] * 20),
)
"""For trying policies out: with an episode's own one, as many as there are made-up episodes. The last one is cut off by
every tokenizer that fills up shorter ones: where nothing is filled up there is nothing to mask, and some networks
compute without a mask if that is so for the whole batch."""


def pads_to_neighbours(process: Callable[[dict[str, Any]], Mapping[str, Any]], looks: Mapping[str, Any]) -> bool:
    """Returns whether what a pre-processor makes of a row depends on how long the sentences of its neighbours are.

    Some (GR00T's; SmolVLA's, by setting) fill sentences up to the longest one of the batch, and not every policy masks
    what was filled up. Rows would come out otherwise than alone: in GR00T visibly, elsewhere in the last bits. It is
    found out, not asked: no two families have the same name for it.

    Args:
        process: The pre-processor.
        looks: An observation of one row, without a sentence.
    """

    def shapes(*sentences: str) -> dict[str, Any]:
        rows = {name: tensor.repeat(len(sentences), *[1] * (tensor.ndim - 1)) for name, tensor in looks.items()}
        processed = process({**rows, "task": list(sentences)})
        return {name: value.shape[1:] for name, value in processed.items() if isinstance(value, torch.Tensor)}

    try:
        with torch.inference_mode():
            return shapes(_SHORT, _SHORT) != shapes(_SHORT, _LONG)
    except Exception as error:  # noqa: BLE001  # a step may want more than zeros
        log.info("not known whether sentences may share batches, so they do not: %s: %s", type(error).__name__, error)
        return True
