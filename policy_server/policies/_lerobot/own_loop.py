"""LeRobot policies that remember more than queues: driven through their own `select_action`, one row at a time.

TD-MPC starts its plan from the one before, LingBot-VA feeds what it sees into a cache, a plug-in may keep the state of
an LSTM. Whatever it is, it is on the policy object, and it is exchanged with the session's: the loop is the policy's
own, and one copy of the weights serves all sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sparring.policy_server.policies._lerobot.episode_rng import EpisodeRng
from sparring.policy_server.policies._lerobot.module_state import ModuleState
from sparring.policy_server.policies.torch_batch import Batch
from sparring.protos.errors import SparringError, UsageError

Show = Callable[[], Sequence[Mapping[str, Any]]]
"""Makes the processed observations of a batch, one step after the other, oldest first."""

_KEPT: Final = "kept"


class OwnLoop:
    """A policy that is shown every step, as in LeRobot's own loop, and answers each with one action.

    Args:
        policy: The LeRobot policy, on its device, before it is called for the first time.
        inner: The same, without the PEFT adapter around it.
        state: What it keeps on itself.

    Raises:
        UsageError: If its `reset()` exchanges parts of the network itself: which of them are weights cannot be known.
    """

    chunk_length = 1
    history = 1
    rows_at_once = 1

    def __init__(self, policy: Any, inner: Any, state: ModuleState) -> None:
        self._policy = policy
        self._inner = inner
        self._state = state
        state.adopt()
        before = list(inner.modules())
        inner.reset()
        if list(inner.modules()) != before:
            raise UsageError(
                f"a LeRobot policy of type {inner.config.type!r} makes new parts of its network in reset(), so what "
                "belongs to an episode cannot be told from the weights; it cannot be served."
            )

    def actions(self, show: Show, batch: Batch, rng: EpisodeRng) -> Any:
        """Returns one action for the one row of a batch.

        Args:
            show: Makes the processed observation.
            batch: Where the session's memory is.
            rng: For what the policy draws.
        """
        if len(batch) != 1:
            raise SparringError(
                f"a policy with a memory of its own got {len(batch)} rows at once; a fault of Sparring."
            )
        # It may be in the middle of anything when it fails, so it is never run twice for one observation.
        rng.row_by_row = True
        (kept,) = batch.recalled(_KEPT)
        (frame,) = show()

        def step() -> Any:
            if kept is None:
                self._state.fresh()
                self._inner.reset()  # with the episode's generator, like everything the policy draws
            else:
                self._state.put(kept)
            return self._policy.select_action(dict(frame))

        action = rng.run(step, batch.generators)
        batch.remember(_KEPT, [self._state.take()])
        return action[:, None]
