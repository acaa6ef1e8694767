"""A LIBERO suite of ten tasks with two slots: how much of slot time is making and resetting simulators, and its memory.

The suite is run whole, by a policy that looks at both cameras once in ten steps, and then cut after one step: what is
left of it then is construction and resets.

    python benchmarks/libero_suite.py [--suite libero_spatial] [--episodes 2] [--slots 2]
"""

from __future__ import annotations

import argparse
from statistics import median

from common import conclude, evaluate, show
from memory import Sampler

TARGET = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="libero_spatial")
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--slots", type=int, default=2)
    options = parser.parse_args()

    settings = {
        "benchmark": "libero",
        "task": options.suite,
        "policy": "random",
        "policy_arg": {"chunk": 10, "observations": ["observation.images.image", "observation.images.image2"]},
        "episodes": options.episodes,
        "slots": options.slots,
    }
    sampler = Sampler()
    whole = sum(row.seconds for row in evaluate(settings, sampler).rows)
    cut = sum(row.seconds for row in evaluate({**settings, "max_steps": 1}).rows)
    totals = [sample.total for sample in sampler.samples if len(sample.slots) == options.slots]
    first, last = median(totals[:5]), median(totals[-5:])
    show(
        f"{options.suite}: 10 tasks × {options.episodes} episodes, {options.slots} slots, both cameras, chunk 10",
        ["", "seconds of slots", "share"],
        [
            ["whole episodes", f"{whole:.1f}", ""],
            ["cut after one step: construction, resets", f"{cut:.1f}", f"{cut / whole:.1%}"],
        ],
    )
    show(
        "PSS of worker, fork server and slots, in MiB",
        ["first 5 episodes", "last 5 episodes", "peak"],
        [[f"{first:.0f}", f"{last:.0f}", f"{max(totals):.0f}"]],
    )
    conclude(
        "libero_suite",
        target=f"construction and resets at most {TARGET:.0%} of slot time; memory stays flat",
        met=cut / whole <= TARGET and last <= 1.1 * first,
        set_up_share=cut / whole,
        pss_mib={"first": first, "last": last, "peak": max(totals)},
    )


if __name__ == "__main__":
    main()
