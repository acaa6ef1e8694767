"""What a chunk of actions must be: looked at where the policy answers, and again where its answer is played."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparring.policy_server.errors import PolicyFailed
from sparring.protos.tensor import Array, TensorError, dtype_code


def checked_chunk(chunk: Any, action_dim: int, chunk_length: int) -> Array:
    """Returns a policy's answer to one observation, if it is a chunk of usable actions.

    Raises:
        PolicyFailed: If its type, shape or values are wrong, with what they should be.
    """
    try:
        actions = np.asarray(chunk)
        dtype_code(actions.dtype)
    except TensorError as error:
        raise PolicyFailed(
            f"the policy answered with something that is no array of numbers: {error.sentence}"
        ) from error
    except Exception as error:  # a tensor that wants a gradient says so by a RuntimeError; others by whatever they like
        raise PolicyFailed(f"the policy answered with something that is no array of numbers: {error}") from error
    wanted = f"a chunk is (length, action_dim) with length 1 to {chunk_length} and action_dim {action_dim}"
    if actions.ndim != 2 or not 1 <= actions.shape[0] <= chunk_length or actions.shape[1] != action_dim:
        raise PolicyFailed(f"the policy answered one observation with the shape {actions.shape}; {wanted}.")
    if not np.isfinite(actions).all():
        row, column = np.argwhere(~np.isfinite(actions))[0]
        raise PolicyFailed(
            f"the policy answered with {actions[row, column]} in dimension {column} of action {row} of its chunk."
        )
    return actions
