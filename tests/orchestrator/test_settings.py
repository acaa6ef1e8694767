"""Settings from flags and files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from sparring.orchestrator.cli.main import cli
from sparring.orchestrator.cli.options import FILE_ONLY
from sparring.orchestrator.launchers.base import share_slots
from sparring.orchestrator.machine.capacity import Capacity
from sparring.orchestrator.settings import parse_pairs, read_settings, run, setting_fields
from sparring.protos.advice import FLAGS
from sparring.protos.errors import UsageError
from sparring.protos.record import Outcome

BASE = {"benchmark": "toy", "task": "short", "policy": "zero"}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return path


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, "benchmark: toy\ntask: short\npolicy: zero\nepisodes: 7\nmax-parallel-tasks: 2\n")
    settings = read_settings({"episodes": 3}, path)
    assert (settings.plan.episodes, settings.plan.max_parallel_tasks, settings.plan.seed) == (3, 2, 1000)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("episods: 3", r"unknown setting in .*'episods'. Did you mean 'episodes'"),
        ("- a\n- b", "key: value"),
        ("a: [", "not valid YAML"),
    ],
)
def test_files_with_mistakes(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        read_settings(BASE, write(tmp_path, text))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"episodes": 0}, "--episodes: .*greater than or equal to 1, not 0"),
        ({"slots": "many"}, "--slots"),
        ({"retries_of": {"polcy": 0}}, "--retries-of: .*'policy'"),
        ({"retries_of": {"policy": -1}}, "--retries-of: .*greater than or equal to 0"),
        ({"slots": 0}, "--slots: must be at least 1, or auto"),
        ({"video": "some"}, "--video: must be none, failures, successes, all, first:N, or TASK:INDEX,..."),
        ({"policy": None}, r"^--policy \(hosted for this run\) or --policy-server .* give one of them"),
        ({"policy_server": "a:1"}, r"^--policy \(hosted for this run\) or --policy-server .* give one of them"),
        (
            {"policy": None, "policy_server": "openpi://gpu:8000"},
            "another project is a policy: --policy openpi://gpu",
        ),
        ({"policy": None, "policy_server": "http://gpu:8000"}, r"http:// is not known; [^A]*$"),
        ({"policy": None, "policy_server": "a:1, http://gpu:8000/act"}, "a policy: --policy http://gpu:8000/act"),
        ({"policy_token_file": "token"}, "--policy-token-file goes with --policy-server"),
        ({"policy_ca": "ca.pem"}, "--policy-ca goes with --policy-server"),
        ({"observe": "never"}, "--observe"),
        ({"task": None}, "--task"),
    ],
)
def test_values_that_are_wrong(change: dict[str, object], sentence: str) -> None:
    assert re.search(sentence, refused({**BASE, **change}))


def test_what_is_missing_is_named() -> None:
    assert refused({"policy": "zero"}) == "--benchmark is missing."
    assert refused({"policy": "zero", "benchmark": "toy"}) == "--task is missing."


def refused(settings: dict[str, object]) -> str:
    """What the command says about settings."""
    with pytest.raises(UsageError) as caught:
        read_settings(settings)
    return caught.value.told(FLAGS)


def test_every_setting_is_a_flag() -> None:
    said = CliRunner().invoke(cli, ["run", "--help"]).output
    for name in set(setting_fields()) - set(FILE_ONLY):
        assert f"--{name.replace('_', '-')}" in said


def test_pairs_have_types() -> None:
    given = ("a=2", "b=2.5", "c=true", 'd=["x", "y"]', "e=text", "f=a=b")
    expected = {"a": 2, "b": 2.5, "c": True, "d": ["x", "y"], "e": "text", "f": "a=b"}
    assert parse_pairs(given, "--policy-arg") == expected
    for wrong in ("novalue", "=1", "a b=1"):
        with pytest.raises(UsageError, match="not KEY=VALUE"):
            parse_pairs((wrong,), "--policy-arg")


def test_automatic_slots_are_what_this_machine_is_good_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "capacity", lambda: Capacity(cores=10))
    assert [read_settings(BASE).slot_count(episodes) for episodes in (3, 100)] == [3, 7]
    assert read_settings({**BASE, "slots": 5}).slot_count(100) == 5
    assert read_settings({**BASE, "slots": 5}).slot_reason(100) == ""


@pytest.mark.parametrize(
    ("policy", "slots"),
    [
        ({"policy": "zero"}, 7),
        ({"policy": "lerobot:somewhere", "policy_arg": {"device": "cpu"}}, 7),
        ({"policy": "lerobot:somewhere", "policy_arg": {"device": "cuda:1"}}, 30),
        ({"policy_server": "gpu.example:50051"}, 30),
        ({"policy_server": "127.0.0.1:50051"}, 7),
        ({"policy_server": "unix:///tmp/policy.sock"}, 7),
        ({"policy_server": "gpu.example:50051,localhost:50051"}, 7),
    ],
)
def test_automatic_slots_are_more_where_the_policy_has_processors_of_its_own(
    policy: dict[str, Any], slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "capacity", lambda: Capacity(cores=10))
    settings = read_settings({"benchmark": "toy", "task": "short", **policy})
    assert settings.slot_count(100) == slots
    assert ("computed elsewhere" in settings.slot_reason(100)) == (slots == 30)


def test_which_episodes_are_filmed() -> None:
    def filmed(video: str) -> list[str]:
        output = read_settings({**BASE, "video": video}).output
        outcomes: list[Outcome] = ["success", "failure", "error"]
        return [f"{n} {o}" for n in range(3) for o in outcomes if output.wants_film("a/1", n, o)]

    assert filmed("none") == []
    assert filmed("failures") == ["0 failure", "1 failure", "2 failure"]
    assert filmed("successes") == ["0 success", "1 success", "2 success"]
    assert filmed("first:1") == ["0 success", "0 failure"]
    assert filmed("a/1:2,b:0") == filmed("b:0, a/1:2") == ["2 success", "2 failure"]
    assert len(filmed("all")) == 6


def test_an_episode_to_film_may_be_named_with_its_part_of_the_run() -> None:
    output = read_settings({**BASE, "video": "big/a:0"}).output
    assert output.wants_film("a", 0, "failure", benchmark="big")
    assert not output.wants_film("a", 0, "failure", benchmark="small")
    assert not output.wants_film("a", 1, "failure", benchmark="big")
    assert output.wants_film("a", 0, "failure"), "what was asked for is kept"
    assert read_settings({**BASE, "video": "a:0"}).output.wants_film("a", 0, "failure", benchmark="big")


LISTS: dict[str, list[Any]] = {
    "task": ["short", "long"],
    "protocols": ["lerobot-0.6", "ours"],
    "policy_server": ["gpu-1:50051", "gpu-2:50051"],
    "track": ["tensorboard", "mlflow"],
    "video": ["short:0", "long:1"],
    "render_device": [0, 1],
    "container": ["toy=apptainer:toy.sif", "gym=apptainer:gym.sif"],
}


@pytest.mark.parametrize("name", [n for n, field in setting_fields().items() if "comma-sep" in str(field.description)])
def test_where_a_flag_takes_commas_a_file_takes_a_list(name: str, tmp_path: Path) -> None:
    base: dict[str, Any] = (
        {"benchmark": "metaworld", "task": "reach-v3", "policy": "zero"} if name == "protocols" else {**BASE}
    )
    if name == "policy_server":
        del base["policy"]
    elif name == "container":
        base["launcher"] = "slurm"
    with_commas = read_settings({**base, name: ",".join(map(str, LISTS[name]))})
    path = write(tmp_path, yaml.safe_dump({**base, name: LISTS[name]}))
    assert read_settings({}, path).flat() == with_commas.flat()


def test_several_benchmarks_in_one_file(tmp_path: Path) -> None:
    text = "policy: zero\nevaluations:\n- {benchmark: toy, task: short}\n- {benchmark: gym, task: CartPole-v1}\n"
    settings = read_settings({}, write(tmp_path, text))
    assert [(part.benchmark, part.task) for part in settings.plan.parts] == [("toy", "short"), ("gym", "CartPole-v1")]
    with pytest.raises(UsageError, match="cannot stand beside evaluations"):
        read_settings({"task": "short"}, write(tmp_path, text))
    with pytest.raises(UsageError, match="twice"):
        read_settings({}, write(tmp_path, text.replace("gym", "toy")))


@pytest.mark.parametrize(
    ("slots", "waiting", "shares"),
    [
        (4, {"a": 30, "b": 10}, {"a": 3, "b": 1}),
        (1, {"a": 30, "b": 10}, {"a": 1, "b": 1}),
        (6, {"a": 10, "b": 10}, {"a": 3, "b": 3}),
        (3, {"a": 5}, {"a": 3}),
    ],
)
def test_slots_are_shared_by_what_waits(slots: int, waiting: dict[str, int], shares: dict[str, int]) -> None:
    assert share_slots(slots, waiting) == shares


def test_rename_is_an_argument_of_the_policy() -> None:
    pairs = parse_pairs(("camera1=agentview_image", "observation.images.top=observation.image"), "--rename")
    base = {"benchmark": "metaworld", "task": "mt10", "policy": "lerobot:folder"}
    settings = read_settings({**base, "rename": pairs, "policy_arg": {"device": "cpu"}}, None)
    assert settings.policy.arguments == {
        "device": "cpu",
        "rename": {"camera1": "agentview_image", "observation.images.top": "observation.image"},
    }
    assert read_settings(base, None).policy.arguments == {}, "what is not asked for is not told to policies"
    with pytest.raises(UsageError, match="the same; give one of them"):
        read_settings({**base, "rename": pairs, "policy_arg": {"rename": {}}}, None)
    elsewhere = {"benchmark": "a", "task": "b", "policy_server": "c:1", "rename": pairs}
    assert "--rename goes with --policy" in refused(elsewhere)
    assert "--rename" in refused({**base, "rename": {"camera1": 3}})
    with pytest.raises(UsageError, match="not KEY=VALUE"):
        parse_pairs(("camera..1=x",), "--rename")


def test_a_seed_may_be_as_large_as_can_be_recorded_and_no_larger() -> None:
    plan = {**BASE, "episodes": 3}
    assert read_settings({**plan, "seed": 2**63 - 3}).plan.seed == 2**63 - 3
    assert f"--seed is too large: the last episode's seed, {2**63}, is above" in refused({**plan, "seed": 2**63 - 2})
