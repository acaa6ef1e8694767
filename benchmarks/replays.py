"""How fast recorded episodes are played again, against the evaluation that recorded them: seconds of slots, in one run.

python benchmarks/replays.py [--benchmark metaworld] [--task reach-v3,door-open-v3] [--policy expert] [--episodes 6]
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from common import conclude, show

from sparring.orchestrator.execution.execution import run as evaluate
from sparring.orchestrator.execution.in_process import run_in_process
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.replays import Replayed, Wanted, replay, working_folder
from sparring.orchestrator.replay.verification import check
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import read_settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", default="metaworld")
    parser.add_argument("--task", default="reach-v3,door-open-v3")
    parser.add_argument("--policy", default="expert")
    parser.add_argument("--episodes", type=int, default=6, help="episodes per task")
    parser.add_argument("--in-process", action="store_true", help="for a benchmark that this Python has")
    options = parser.parse_args()

    shared = {"in_process": True} if options.in_process else {"slots": 1}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        plan = {"benchmark": options.benchmark, "task": options.task, "policy": options.policy}
        settings = read_settings({**plan, **shared, "episodes": options.episodes, "output": folder})
        if options.in_process:
            run_in_process(settings, make_plan(settings), folder)
        else:
            asyncio.run(evaluate(settings, make_plan(settings), folder))
        run = RecordedRun.in_folder(folder)
        heard: list[Replayed] = []
        with working_folder(Path(temporary) / "work") as work:
            replay(run, run.rows, Wanted(now=shared), work, heard.append)
        with closing(sqlite3.connect(folder / "journal.sqlite")) as journal:
            query = "SELECT avg(length(content)), avg(length(trace)) FROM actions"
            actions, trace = journal.execute(query).fetchone()

    # The first episode of a task makes its simulator, then and now.
    then = sum(each.recorded.seconds for each in heard if each.recorded.index)
    now = sum(each.again.seconds for each in heard if each.recorded.index)
    number = sum(1 for each in heard if each.recorded.index)
    steps = sum(each.recorded.steps for each in heard) / len(heard)
    same = sum(check(run, each).verdict == "same" for each in heard)
    show(
        f"{options.benchmark}, {len(heard)} episodes of {steps:.0f} steps, {same} of them the same to the bit",
        ["", "episodes a second"],
        [["live", f"{number / then:.2f}"], ["played again", f"{number / now:.2f}"]],
    )
    conclude(
        "replays",
        target="every replay the same to the bit, and no slower than the episode",
        met=same == len(heard) and now <= then,
        replays_to_live=then / now,
        bytes_of_actions=actions,
        bytes_of_traces=trace,
    )


if __name__ == "__main__":
    main()
