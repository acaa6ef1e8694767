"""Trains a network on demonstrations, and evaluates it on the way."""

from __future__ import annotations

import argparse
import csv
import logging
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from examples.behaviour_cloning.demonstrations import Demonstrations, read_demonstrations, seed_everything
from examples.behaviour_cloning.figure import HIGH, LOW, draw_curves
from examples.behaviour_cloning.policy import (
    IMAGE,
    PROPRIOCEPTION,
    STATE,
    ClonedPolicy,
    Network,
    PixelNet,
    StateNet,
    save,
)
from sparring import SparringError, evaluate

log = logging.getLogger("train")

EVALUATION_SEED = 1000
"""Episode k of an evaluation has the seed 1000 + k; demonstrations must have others."""


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Trains, evaluates every so many steps, saves the checkpoint, the curve and its figure; returns the last rates."""
    options = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("sparring").setLevel(logging.WARNING)
    seed_everything(options.seed)
    torch.set_num_threads(options.threads)

    tasks = options.tasks.split(",")
    names = [STATE] if options.kind == "states" else [IMAGE, PROPRIOCEPTION]
    chunk = 1 if options.kind == "states" else options.chunk
    demonstrations = read_demonstrations(options.demos, names=names, chunk=chunk, tasks=tasks)
    evaluated = range(EVALUATION_SEED, EVALUATION_SEED + options.episodes)
    if demonstrations.seeds & set(evaluated):
        raise SystemExit("the demonstrations have episodes that are evaluated; record them with another --seed.")
    network = _network(options, demonstrations)
    log.info(
        "%d demonstrations of %d tasks, %d looks; %d parameters",
        demonstrations.episodes,
        len(demonstrations.sentences),
        len(demonstrations.actions),
        sum(p.numel() for p in network.parameters()),
    )

    curve: list[dict[str, float]] = []

    def test(step: int) -> None:
        began = time.perf_counter()
        results = evaluate(
            ClonedPolicy(network=network, device="cpu"),
            benchmark="metaworld",
            tasks=tasks,
            episodes=options.episodes,
            slots=options.slots,
            seed=EVALUATION_SEED,
            max_steps=options.max_steps,
            benchmark_arg={"resolution": options.side} if options.kind == "images" else {},
        )
        if results.overall.errors:  # a mistake of this program, not of the policy
            raise SystemExit(next(row.error for row in results.rows if row.error))
        curve.append({"step": step})
        for name, summary in {**results.tasks, "overall": results.overall}.items():
            low, high = summary.interval
            curve[-1] |= {name: summary.successes / summary.n, name + LOW: low, name + HIGH: high}
        log.info(
            "step %d: success %.1f %% of %d episodes (%.1f s)",
            step,
            100 * curve[-1]["overall"],
            results.overall.n,
            time.perf_counter() - began,
        )

    _train(network, demonstrations, options, test)
    options.output.mkdir(parents=True, exist_ok=True)
    save(network, options.output / f"{options.kind}.safetensors")
    _write_curve(curve, options.output / f"{options.kind}.csv")
    title = f"Cloned from {options.kind}: success in {options.episodes} episodes per task"
    draw_curves(curve, options.output / f"{options.kind}.svg", title=title)
    log.info("saved to %s", options.output)
    return curve[-1]


def _network(options: argparse.Namespace, demonstrations: Demonstrations) -> Network:
    network: Network
    if options.kind == "states":
        network = StateNet(demonstrations.sentences)
    else:
        network = PixelNet(demonstrations.sentences, side=options.side, chunk=options.chunk)
    network.normalise({name: torch.from_numpy(array) for name, array in demonstrations.observations.items()})
    return network


def _train(network: Network, demonstrations: Demonstrations, options: argparse.Namespace, test: Any) -> None:
    observations = {name: torch.from_numpy(array) for name, array in demonstrations.observations.items()}
    actions = torch.from_numpy(demonstrations.actions)
    task = torch.from_numpy(demonstrations.task)
    optimiser = torch.optim.AdamW(network.parameters(), lr=options.rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, options.steps)
    test(0)
    running, seconds = 0.0, 0.0
    for step in range(1, options.steps + 1):
        began = time.perf_counter()
        rows = torch.randint(len(actions), (options.batch,))
        batch = {name: tensor[rows] for name, tensor in observations.items()}
        if IMAGE in batch:
            batch[IMAGE] = _shifted(batch[IMAGE])
        loss = nn.functional.l1_loss(network(batch, task[rows]), actions[rows])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        running += (loss.item() - running) / min(step, 100)
        seconds += time.perf_counter() - began
        if step % options.every == 0 or step == options.steps:
            log.info("step %d: loss %.4f, %.1f s of training", step, running, seconds)
            test(step)


def _shifted(images: torch.Tensor, most: int = 2) -> torch.Tensor:
    """Each image moved by a pixel or two, so that no single pixel is learned by heart."""
    side = images.shape[1]
    padded = nn.functional.pad(images.permute(0, 3, 1, 2).float(), (most,) * 4, mode="replicate")
    corners = torch.randint(2 * most + 1, (len(images), 2))
    cut = [image[:, y : y + side, x : x + side] for image, (y, x) in zip(padded, corners.tolist(), strict=True)]
    return torch.stack(cut).permute(0, 2, 3, 1)


def _write_curve(curve: list[dict[str, float]], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, curve[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(curve)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.behaviour_cloning.train", description=__doc__)
    parser.add_argument(
        "--demos",
        type=Path,
        required=True,
        help="folder that `sparring run --record` or `sparring export --format npz` wrote",
    )
    parser.add_argument("--kind", choices=["states", "images"], default="states", help="what the policy sees")
    parser.add_argument("--tasks", required=True, help="comma-separated")
    parser.add_argument("--steps", type=int, default=1000, help="of training")
    parser.add_argument("--every", type=int, default=100, help="steps between evaluations")
    parser.add_argument("--episodes", type=int, default=20, help="of each task in each evaluation")
    parser.add_argument("--max-steps", type=int, default=200, help="of an episode; experts need 40 to 130")
    parser.add_argument("--slots", type=int, default=2, help="episodes at once in evaluations")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--side", type=int, default=64, help="height and width of images")
    parser.add_argument("--chunk", type=int, default=5, help="actions per image")
    parser.add_argument("--seed", type=int, default=0, help="of training")
    parser.add_argument("--threads", type=int, default=1, help="that torch trains with")
    parser.add_argument("--output", type=Path, default=Path("outputs/behaviour_cloning"))
    return parser


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        log.info("interrupted; nothing was saved")
        raise SystemExit(130) from None
    except SparringError as mistake:  # of usage, with a sentence that says what to do
        raise SystemExit(str(mistake)) from None
