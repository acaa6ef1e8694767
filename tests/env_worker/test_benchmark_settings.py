"""What a benchmark's settings take: everything else is refused before a run starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from support import Sparring
from toy_benchmark import Toy

from sparring.env_worker.benchmark import setting
from sparring.env_worker.registry import get_benchmark
from sparring.protos.errors import UsageError


@dataclass(frozen=True)
class Settings:
    side: int = setting(8, least=2, most=64)
    rate: float = setting(1.0, least=0.5)
    loss: float = setting(0.0, most=1)
    camera: str = setting("front", choices=("front", "wrist"))
    first: int = 0
    last: int = 9

    def __post_init__(self) -> None:
        if self.first > self.last:
            raise ValueError("first is after last")


class Ranged(Toy):
    settings: ClassVar[type[Any]] = Settings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"side": 0}, "the setting 'side' of the benchmark 'toy' must be 2 to 64, not 0."),
        ({"side": 65}, "must be 2 to 64, not 65."),
        ({"rate": -1}, "'rate' of the benchmark 'toy' must be at least 0.5, not -1."),
        ({"rate": float("nan")}, "must be at least 0.5, not nan."),
        ({"loss": 2.0}, "must be at most 1, not 2.0."),
        ({"camera": "back"}, "'camera' of the benchmark 'toy' must be front or wrist, not 'back'."),
        ({"first": 5, "last": 3}, "the settings of the benchmark 'toy' cannot be: first is after last"),
    ],
)
def test_what_is_out_of_range_is_refused_with_the_range(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        Ranged().read_settings(given)
    assert said in str(refused.value)


def test_what_is_in_range_is_taken() -> None:
    given = {"side": 64, "rate": 2, "loss": 1, "camera": "wrist", "last": 0}
    assert Ranged().read_settings(given) == Settings(**given)


@pytest.mark.parametrize(
    ("benchmark", "wrong"),
    [
        ("metaworld", {"resolution": 0}),
        ("metaworld", {"resolution": -480}),
        ("libero", {"resolution": 0}),
        ("libero", {"control": "sideways"}),
        ("libero", {"loop": "slow"}),
        ("gym", {"max_steps": -1}),
    ],
)
def test_ours_say_their_ranges(benchmark: str, wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(UsageError, match=f"the setting '{name}' of the benchmark '{benchmark}' must be"):
        get_benchmark(benchmark).read_settings(wrong)


def test_a_run_is_refused_before_anything_starts(usage: Sparring) -> None:
    ended = usage(
        "run", "--benchmark", "metaworld", "--task", "reach-v3", "--policy", "random", "--benchmark-arg", "resolution=0"
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "error: the setting 'resolution' of the benchmark 'metaworld' must be 16 to 4096, not 0.\n"
