"""The same advice from the policy server, in the words of three kinds of reader."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Sparring
from toy_policies import OtherImages

from sparring import Evaluator, Offer, PolicyClient, TensorSpec
from sparring.policy_server.client import PolicyRefused, PolicyUnreachable
from sparring.protos.errors import UsageError

TOY = ("--benchmark", "toy", "--task", "short", "--episodes", "1", "--slots", "1", "--output", "out")
LEROBOT = ("lerobot-eval", "--policy.path=none", "--env.type=metaworld", "--env.task=reach-v3", "--")
POLICY = ("--policy", "toy_policies:OtherImages")
WARN = ("--policy-arg", "strict=false")
ADVICE = {
    "run": "--benchmark-arg resolution=224",
    "evaluate": 'benchmark_arg={"resolution": 224}',
    "lerobot-eval": "-- --benchmark-arg resolution=224",
}


def test_the_command_says_flags(sparring: Sparring, tmp_path: Path) -> None:
    refused = sparring("run", *TOY, *POLICY)
    assert refused.returncode == 2
    assert f"if they mean the same, try {ADVICE['run']}:" in refused.stderr
    warned = sparring("run", *TOY, *POLICY, *WARN)
    assert warned.returncode == 0, warned.stderr
    for said in (warned.stderr, warned.stdout, *written_warnings(tmp_path / "out")):
        assert f"; {ADVICE['run']} shows it what it knows." in " ".join(said.split())
    assert "{{" not in refused.stderr + warned.stderr + warned.stdout


@pytest.mark.everything
def test_lerobot_eval_says_lerobots_flags_or_ours_after_two_dashes(sparring: Sparring, tmp_path: Path) -> None:
    refused = sparring(*LEROBOT, *TOY, *POLICY)
    assert refused.returncode == 2
    assert f"if they mean the same, try {ADVICE['lerobot-eval']}:" in refused.stderr
    warned = sparring(*LEROBOT, *TOY, *POLICY, *WARN)
    assert warned.returncode == 0, warned.stderr
    for said in (warned.stderr, warned.stdout):
        assert f"; {ADVICE['lerobot-eval']} shows it what it knows." in " ".join(said.split())
    (kept,) = written_warnings(tmp_path / "out")
    assert f"; {ADVICE['run']} shows" in kept, "a file is for everybody"


def test_evaluate_says_keyword_arguments(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with Evaluator() as evaluator:
        with pytest.raises(UsageError) as caught:
            evaluator.evaluate(OtherImages(), benchmark="toy", tasks="short", episodes=1, slots=1)
        assert f"if they mean the same, try {ADVICE['evaluate']}:" in str(caught.value)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            results = evaluator.evaluate(
                OtherImages(strict=False), benchmark="toy", tasks="short", episodes=1, slots=1, output=tmp_path / "out"
            )
    (told,) = results.warnings
    # The server of the first may say only now that it was ended.
    for said in (told, *(message for message in caplog.messages if "the policy server shut down" not in message)):
        assert f"; {ADVICE['evaluate']} shows it what it knows." in said
    (kept,) = written_warnings(tmp_path / "out")
    assert f"; {ADVICE['run']} shows" in kept


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tasks": None}, "tasks= is missing."),
        ({"slots": 0}, "slots=: must be at least 1, or auto, not 0."),
        ({"worker_memory": "6g"}, 'worker_memory= goes with launcher="docker".'),
        ({"video": "all"}, "films are written to the output folder: give one with output=."),
    ],
)
def test_settings_of_evaluate_are_called_as_they_are_given(settings: dict[str, object], sentence: str) -> None:
    with Evaluator() as evaluator, pytest.raises(UsageError) as caught:
        evaluator.evaluate(OtherImages(), **{"benchmark": "toy", "tasks": "short", **settings})  # type: ignore[arg-type]
    assert str(caught.value) == sentence


def test_a_user_of_the_client_reads_python() -> None:
    with PolicyClient("127.0.0.1:9", timeout=0.2) as client, pytest.raises(PolicyUnreachable, match=r"\(timeout=\)"):
        client.describe()


def test_a_user_of_the_client_whose_offer_does_not_fit_reads_python(served: str) -> None:
    offer = Offer({"position": TensorSpec("float64", (1,)), "image": TensorSpec("uint8", (4, 4, 3))}, (-1.0,), (1.0,))
    with PolicyClient(served, timeout=20) as client, pytest.raises(PolicyRefused) as caught:
        client.open(offer)
    assert f"try {ADVICE['evaluate']}:" in str(caught.value)
    assert caught.value.hints[0].value == 224


@pytest.fixture
def served() -> Iterator[str]:
    """A policy server as people start it."""
    command = [sys.executable, "-m", "sparring", "serve", *POLICY, "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert server.stdout is not None
    yield json.loads(server.stdout.readline())["listening"][0]
    server.kill()
    server.communicate()


def written_warnings(folder: Path) -> list[str]:
    return list(json.loads((folder / "run.json").read_text())["server_stats"]["warnings"])
