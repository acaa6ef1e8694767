"""A run that stops early while it is not known yet which episode has taken the policy server down."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coordinated import Hand, Run

from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.run.early_stopping import early_stopping
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.serving.policy_host import ServerEnd
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.action_list import pack

ACTIONS = pack([np.zeros(2, np.float32)])
CRASH = ServerEnd("crashed", "ended with exit code 9")
SLOTS = 4


class StoppingRun(Run):
    """A run with films by replay that stops when its rate is known well enough."""

    def __init__(self, folder: Path, *, drain: bool = False, video: str = "all") -> None:
        folder.mkdir()
        super().__init__(folder, task="good", episodes=9, until="half-width=0.2", video=video)
        plan = make_plan(self.settings)
        self.stopping = early_stopping(self.settings, plan)
        self.coordinator = Coordinator(
            *(plan, self.settings, self.journal, folder, self.watcher, RetryRules()),
            stopping=self.stopping,
            drain=drain,
        )
        self.coordinator.policy.restart = lambda *_, **__: False
        self.hand = Hand(self, slots=SLOTS)
        self.held = [self.hand.takes(slot) for slot in range(SLOTS)]

    def plays(self) -> None:
        """Brings the episode that is longest on loan to its end, and begins another."""
        self.hand.finishes(first := self.held.pop(0), actions=ACTIONS, steps=1)
        if self.stopping.rounds is None:
            self.held.append(self.hand.takes(first.slot))


def results_until_it_stops(folder: Path) -> int:
    run = StoppingRun(folder)
    while run.stopping.rounds is None:
        run.plays()
    run.journal.close()
    return len(run.watcher.rows)


def one_result_before_it_stops(tmp_path: Path, **more: Any) -> StoppingRun:
    """The first episode on loan is the last of its round; all others are of later ones."""
    last = results_until_it_stops(tmp_path / "before")
    run = StoppingRun(tmp_path / "run", **more)
    for _ in range(last - 1):
        run.plays()
    assert run.stopping.rounds is None
    return run


def test_suspects_that_wait_and_are_cut_off_hold_up_no_film(tmp_path: Path) -> None:
    async def play() -> None:
        run = one_result_before_it_stops(tmp_path)
        run.coordinator.policy_ended(CRASH)
        for lease in run.held:
            run.hand.says(lost=pb.Lost(lease=lease.lease, reason="it went away.", policy_gone=True))
        for slot in range(SLOTS):
            assert run.hand.ready(slot) is None
        before = len(run.hand.leases)
        run.coordinator.policy_ready()
        tried = run.hand.leases[before:]
        assert len(tried) == SLOTS // 2, "the others wait"
        (last,) = (lease for lease in tried if lease.index == run.held[0].index and lease.task == run.held[0].task)
        run.hand.finishes(last, actions=ACTIONS, steps=1)
        assert run.stopping.rounds is not None
        assert run.coordinator.policy.suspects is None
        filmed = run.hand.leases[before + len(tried) :]
        assert filmed, "slots that asked make films"
        run.journal.close()

    asyncio.run(play())


@pytest.mark.parametrize("why", ["interrupted", "policy_full"])
def test_an_episode_that_is_given_back_after_its_round_was_cut_ends_the_run(tmp_path: Path, why: str) -> None:
    async def play() -> None:
        run = one_result_before_it_stops(tmp_path, drain=True, video="none")
        run.plays()
        assert run.stopping.rounds is not None
        assert not run.coordinator.ended.done(), "what has begun is played to its end"
        for lease in run.held:
            run.hand.says(lost=pb.Lost(lease=lease.lease, reason="another one failed.", **{why: True}))
        assert run.coordinator.ended.done()
        run.journal.close()

    asyncio.run(play())
