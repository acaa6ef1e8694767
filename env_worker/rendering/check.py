"""A run goes on with the renderer that it began with: a policy is not shown the pixels of another one unasked."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sparring.env_worker.benchmark import RenderMeter
from sparring.env_worker.episode.session import Session
from sparring.protos.advice import Hint
from sparring.protos.chunk import Chunk
from sparring.protos.errors import UsageError
from sparring.protos.spec import PolicySpec
from sparring.protos.tensor import Array


class ChangedRenderer(UsageError):
    """What draws here is not what drew the episodes that a run has already."""


class SameRendererSession:
    """A session that looks at what has drawn, each time before the policy is shown it.

    Args:
        session: Of the policy.
        meter: Of the simulator.
        renderers: Those that will do.
    """

    def __init__(self, session: Session, meter: RenderMeter, renderers: Collection[str]) -> None:
        self._session = session
        self._meter = meter
        self._renderers = renderers

    @property
    def needs(self) -> PolicySpec:
        """What the policy needs."""
        return self._session.needs

    def start(self, *, task: str, instruction: str, seed: int, index: int) -> None:
        """Begins an episode."""
        self._session.start(task=task, instruction=instruction, seed=seed, index=index)

    def act(self, tensors: Mapping[str, Array], *, step: int) -> Chunk:
        """Asks the policy.

        Raises:
            ChangedRenderer: If it would be shown what another renderer has drawn.
        """
        now = self._meter.renderer
        if now and now not in self._renderers:
            there = " and ".join(sorted(self._renderers))
            raise ChangedRenderer(
                f"images are drawn by another renderer than those of the episodes recorded so far, and the pixels of "
                f"two differ:\n  renderer: {there} there, {now} now\nDraw with the same "
                f"({Hint('render_device')}, `sparring doctor`), go on with {Hint('accept_changes')} (the results will "
                f"say so), or give another {Hint('output')}."
            )
        return self._session.act(tensors, step=step)
