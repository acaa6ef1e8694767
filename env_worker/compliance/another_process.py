"""Plays episodes of a benchmark in a process of its own, and writes what came of them to a file.

python -m sparring.env_worker.compliance.another_process ORDER FILE
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from sparring.env_worker.compliance.subject import Subject
from sparring.env_worker.gl import choose_backend


def main() -> None:
    """Reads the order, a JSON object, plays, writes."""
    order, answer = json.loads(sys.argv[1]), Path(sys.argv[2])
    choose_backend()
    sys.path.append(os.getcwd())  # where a module beside the user lies
    module, _, name = order["benchmark"].partition(":")
    benchmark = getattr(importlib.import_module(module), name)()
    settings = benchmark.read_settings(order["arguments"])
    benchmark.prepare(settings)
    subject = Subject(
        benchmark,
        benchmark.tasks(order["task"])[0],
        settings,
        order["arguments"],
        episodes=order["episodes"],
        steps=order["steps"],
    )
    answer.write_text(json.dumps([[asdict(frame) for frame in trace] for trace in subject.reference]))


if __name__ == "__main__":
    main()
