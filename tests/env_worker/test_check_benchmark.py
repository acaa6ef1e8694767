"""What `check_benchmark` finds: nothing in our own benchmarks, and every fault in toys that are broken on purpose."""

from __future__ import annotations

import re

import broken_benchmarks
import pytest
from click.testing import CliRunner
from toy_benchmark import Toy

from sparring import check_benchmark
from sparring.env_worker.compliance import RULES_OF_A_BENCHMARK, RULES_OF_A_TASK, verdicts_of
from sparring.orchestrator.cli.main import cli
from sparring.protos.errors import UsageError
from sparring.protos.rules import CheckFailed

# The fault, the rule that it breaks (the first that does), and what the report must name.
FAULTS = [
    ("GroupOfOthers", "groups_name_tasks_that_there_are", "tasks('good') gives short, long"),
    ("NamesMoreThanOne", "a_task_s_name_selects_it", "tasks('short') gives short, long"),
    ("NoSentence", "a_task_s_name_selects_it", "no sentence"),
    ("NamesTwice", "a_list_selects_each_task_once", "short, long, short, long"),
    ("TakesAnyTask", "an_unknown_task_is_refused", "is taken"),
    ("TakesAnyTask", "an_empty_selection_is_refused", "is taken"),
    ("RefusesWithAKey", "an_unknown_task_is_refused", "KeyError"),
    ("TakesAnySetting", "settings_have_defaults_and_types", "no_such_setting=1 is taken"),
    ("ChangeableSettings", "settings_have_defaults_and_types", "frozen"),
    ("OpenShape", "the_offer_is_definite", "'step' is offered as int64 any shape"),
    ("NoControlRate", "the_offer_is_definite", "0.0 Hz"),
    ("WrongType", "observations_are_as_offered", "is float32 (1,), offered as float64 (1,)"),
    ("ShowsMore", "observations_are_as_offered", "position, step"),
    ("ShowsMore", "nothing_is_made_unseen", "step came after reset"),
    ("RendersUnseen", "nothing_is_made_unseen", "images were made"),
    ("CameraUnknown", "the_camera_is_an_image", "'imagge' is not among"),
    ("CameraOfNumbers", "the_camera_is_an_image", "float64 (1,)"),
    ("PicturesNumbers", "the_camera_is_an_image", "'from above' is float64 (3,)"),
    ("CountsNoPictures", "images_are_counted", "meter.renders stayed at 8 after reset, looking at 'from above'"),
    ("CountsNoImages", "images_are_counted", "meter.renders stayed at 0"),
    ("WritesIntoWhatItShowed", "observations_stay_as_they_were", "'position', as shown after reset, was changed"),
    ("WritesIntoActions", "actions_stay_as_they_were", "was changed to [-0.5]"),
    ("GlobalGenerator", "the_same_episode_again", "seed 1000, index 0, played twice"),
    ("EachSimulatorItsOwn", "the_same_episode_in_a_new_simulator", "differs after reset"),
    ("RemembersItsProcess", "the_same_episode_in_another_process", "differs after reset"),
    ("LookingMoves", "looking_changes_nothing", "looking at everything in every step"),
    ("RemembersLongEpisodes", "reset_leaves_nothing_behind", "all of it"),
    ("NeverEnds", "episodes_end_in_time", "after max_steps=20"),
    ("EndsEarly", "episodes_end_in_time", "truncated at step 5"),
    ("SaysAnotherLimit", "episodes_end_in_time", "max_steps=7, its simulator 20"),
    ("SuccessIsNoBool", "steps_can_be_recorded", "success is"),
    ("RewardIsNaN", "steps_can_be_recorded", "step 4: the reward is nan"),
    ("MetricIsInfinite", "steps_can_be_recorded", "'way' is inf"),
    ("ClosesOnce", "closing_twice_is_once", "closed already"),
    ("ClosesAll", "closing_twice_is_once", "'image' differs"),
    ("GlobalGenerator", "recorded_actions_play_it_again", "says replays = False"),
    ("RaisesAtStep", "steps_can_be_recorded", "ValueError: the world came apart"),
]
RULES = {rule.__name__: rule for rule in (*RULES_OF_A_BENCHMARK, *RULES_OF_A_TASK)}


def test_nothing_is_found_in_the_toy() -> None:
    verdicts = check_benchmark("toy", task="good", episodes=1, steps=12)
    assert {verdict.kind for verdict in verdicts} == {"ok"}
    assert len(verdicts) == len(RULES_OF_A_BENCHMARK) + 2 * len(RULES_OF_A_TASK)
    assert {verdict.rule.partition(":")[0] for verdict in verdicts} >= {"short", "long"}


def test_nothing_is_found_in_a_gymnasium_environment() -> None:
    verdicts = check_benchmark("gym", task="CartPole-v1", episodes=2, steps=30)
    skipped = [verdict.detail for verdict in verdicts if verdict.kind == "skipped"]
    assert len(skipped) == 5, "it has neither groups nor a camera"


@pytest.mark.everything
def test_nothing_is_found_in_metaworld() -> None:
    verdicts = check_benchmark("metaworld", task="push-v3", episodes=1, steps=6, settings={"resolution": 16})
    assert {verdict.kind for verdict in verdicts} == {"ok"}


def test_a_benchmark_that_says_it_does_not_replay_is_not_held_against_that() -> None:
    class Honest(broken_benchmarks.GlobalGenerator):
        replays = False

    rule = RULES["recorded_actions_play_it_again"].__doc__ or ""
    found = {verdict.rule: verdict for verdict in verdicts_of(Honest(), task="short", episodes=1, steps=8)}
    verdict = next(one for said, one in found.items() if rule.startswith(said.split(":")[0][:30]))
    assert (verdict.kind, "and so it is" in verdict.detail) == ("skipped", True)


def test_every_rule_is_seen_to_fail() -> None:
    assert {rule for _, rule, _ in FAULTS} == RULES.keys()


@pytest.mark.parametrize(("fault", "rule", "says"), FAULTS, ids=[f"{fault}-{rule}" for fault, rule, _ in FAULTS])
def test_a_fault_is_found_and_told(fault: str, rule: str, says: str) -> None:
    benchmark: Toy = getattr(broken_benchmarks, fault)()
    sentence = (RULES[rule].__doc__ or "").partition("\n")[0]
    # Up to the rule in question and no further: another process takes a second to start.
    verdicts = verdicts_of(benchmark, task="short", episodes=1, steps=12)
    verdict = next(verdict for verdict in verdicts if verdict.rule == sentence)
    verdicts.close()  # type: ignore[attr-defined]
    assert verdict.kind == "FAILED", verdict
    assert says in verdict.detail


def test_a_failure_raises_with_every_rule_that_does_not_hold() -> None:
    with pytest.raises(CheckFailed, match=re.escape("the benchmark 'toy': 2 of 22 rules do not hold")) as caught:
        check_benchmark(broken_benchmarks.CameraOfNumbers(), task="short", episodes=1, steps=5)
    assert "FAILED   The camera, if one is named" in str(caught.value)


def test_what_cannot_be_imported_elsewhere_is_not_tried_there() -> None:
    class Local(Toy):
        pass

    verdicts = check_benchmark(Local(), task="short", episodes=1, steps=5)
    (skipped,) = [verdict.detail for verdict in verdicts if verdict.kind == "skipped"]
    assert "Local cannot be imported there; define it at the top of a module" in skipped


def test_mistakes_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown benchmark 'tpy'"):
        check_benchmark("tpy")
    with pytest.raises(UsageError, match="no list of tasks; name one with task="):
        check_benchmark("gym")
    with pytest.raises(UsageError, match="unknown setting"):
        check_benchmark("toy", settings={"colour": 1})


def test_the_command_tells_a_line_per_rule_and_fails_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["check", "benchmark", "toy", "--task", "short", "--episodes", "1", "--steps", "5"]
    done = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert (done.return_value, done.exception) == (0, None)
    assert done.output.count("\nok ") == 21
    assert done.output.endswith("22 rules: 22 ok, 0 skipped, 0 failed.\n")

    monkeypatch.setattr(Toy, "make", lambda self, task, settings: broken_benchmarks.EndsEarly().make(task, settings))
    done = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert done.return_value == 1
    assert "FAILED   An episode ends" in done.output
    assert "seed 1000, index 0: truncated at step 5, before max_steps=20." in done.output
