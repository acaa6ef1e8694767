"""LIBERO's tasks: the package's own, LeRobot's sentences, and what selections mean. Runs in LIBERO's environment."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from sparring.env_worker.benchmarks._libero.tasks import EPISODE_LIMITS, sentence_of, tasks_of
from sparring.env_worker.benchmarks.libero import Libero
from sparring.protos.errors import UsageError


def package() -> Path:
    spec = importlib.util.find_spec("libero")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "libero"


def task_map() -> dict[str, list[str]]:
    """The package's own lists, read by path: importing them the ordinary way imports torch."""
    path = package() / "benchmark" / "libero_suite_task_map.py"
    spec = importlib.util.spec_from_file_location("task_map", path)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.libero_task_map)


@pytest.mark.parametrize("suite", EPISODE_LIMITS)
def test_names_and_numbers_are_the_packages(suite: str) -> None:
    assert [task.name for task in tasks_of(suite)] == list(task_map()[suite])
    for task in tasks_of(suite):
        assert (package() / "bddl_files" / suite / f"{task.name}.bddl").is_file()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("open_the_middle_drawer_of_the_cabinet", "open the middle drawer of the cabinet"),
        ("KITCHEN_SCENE3_turn_on_the_stove_and_put_the_moka_pot_on_it", "turn on the stove and put the moka pot on it"),
        ("KITCHEN_SCENE10_close_the_top_drawer_of_the_cabinet", "close the top drawer of the cabinet"),
        (
            "LIVING_ROOM_SCENE2_put_both_the_alphabet_soup_and_the_tomato_sauce_in_the_basket",
            "put both the alphabet soup and the tomato sauce in the basket",
        ),
        (
            "STUDY_SCENE1_pick_up_the_book_and_place_it_in_the_back_compartment_of_the_caddy",
            "pick up the book and place it in the back compartment of the caddy",
        ),
    ],
)
def test_sentences(name: str, sentence: str) -> None:
    assert sentence_of(name) == sentence


def test_sentences_follow_lerobots_rule() -> None:
    def grabbed(name: str) -> str:
        # As LIBERO's own benchmark derives task.language from the file's name.
        if name[0].isupper():
            name = name[name.find("SCENE") + (8 if "SCENE10" in name else 7) :]
        return " ".join(name.split("_"))

    for suite in EPISODE_LIMITS:
        assert [t.sentence for t in tasks_of(suite)] == [grabbed(t.name) for t in tasks_of(suite)]


def test_two_tasks_of_one_sentence_stay_two() -> None:
    tasks = Libero().tasks("libero_90")
    assert len({t.name for t in tasks}) == 90
    assert len({t.instruction for t in tasks}) < 90


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        ("libero_goal/3", ["libero_goal/3"]),
        ("libero_goal/8-9", ["libero_goal/8", "libero_goal/9"]),
        ("libero_goal/9, libero_10/0,libero_goal/9", ["libero_goal/9", "libero_10/0"]),
    ],
)
def test_selections(selection: str, names: list[str]) -> None:
    assert [t.name for t in Libero().tasks(selection)] == names


def test_a_task_s_group_is_its_suite_however_it_was_selected() -> None:
    for selection in ("libero_goal/8", "libero_goal/8-9", "libero_goal"):
        task = next(task for task in Libero().tasks(selection) if task.name == "libero_goal/8")
        assert (task.group, task.number, task.initial_states, task.max_steps) == ("libero_goal", 8, 50, 300)


def test_suites() -> None:
    benchmark = Libero()
    assert [len(benchmark.tasks(s)) for s in EPISODE_LIMITS] == [10, 10, 10, 10, 90]
    everything = benchmark.tasks("all")
    assert len(everything) == 40
    assert {t.group for t in everything} == {"libero_spatial", "libero_object", "libero_goal", "libero_10"}


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        ("libero_goals", "Did you mean 'libero_goal'"),
        ("libero_goal/10", "0 to 9"),
        ("libero_90/80-90", "0 to 89"),
        ("libero_goal/x", "cannot read"),
        ("", "no task was named"),
    ],
)
def test_mistakes_are_named(selection: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Libero().tasks(selection)


def test_settings() -> None:
    assert Libero().read_settings({"control": "absolute", "resolution": 128}).resolution == 128
    for wrong in ({"control": "sideways"}, {"resolution": 0}, {"resolutoin": 1}):
        with pytest.raises(UsageError):
            Libero().read_settings(wrong)
