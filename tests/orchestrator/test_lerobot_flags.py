"""What LeRobot's flags mean as settings of a run."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparring.orchestrator.cli import lerobot_flags
from sparring.orchestrator.cli.lerobot_flags import Translated, translate
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import RunSettings
from sparring.protos.errors import UsageError

NOW = datetime(2026, 11, 16, 5, 4, 3)
METAWORLD = ("--policy.path=me/act", "--env.type=metaworld", "--env.task=reach-v3")
LIBERO = ("--policy.path=me/pi0", "--env.type=libero")
PUSHT = ("--policy.path=me/diffusion", "--env.type=pusht")
ANY_SIZE = {"any_resolution": "warn"}


def translated(*arguments: str, **own: Any) -> Translated:
    return translate(arguments, own=own, now=NOW)


def settings(*arguments: str, **own: Any) -> RunSettings:
    return translated(*arguments, **own).settings


def test_defaults_are_lerobots() -> None:
    found = settings(*METAWORLD)
    assert found.plan.benchmark == "metaworld"
    assert found.plan.task == "reach-v3"
    assert found.policy.name == "lerobot:me/act"
    assert found.policy.policy_arg == ANY_SIZE
    assert found.plan.episodes == 50
    assert found.plan.seed == 1000
    assert found.plan.slots == "auto"
    assert found.output.video == "first:10"
    assert found.output.video_names == "lerobot"
    assert found.plan.rules.max_steps == 0
    assert found.plan.rules.out_of_range == "pass"
    assert found.output.folder == Path("outputs/eval/2026-11-16/05-04-03_metaworld_act")
    libero = settings(*LIBERO)
    assert libero.plan.task == "libero_10"
    assert libero.plan.benchmark_arg == {"resolution": 360, "control": "relative"}


@pytest.mark.parametrize("spaced", [False, True])
def test_every_flag_of_the_issue(spaced: bool) -> None:
    pairs = {
        "policy.path": "ckpt",
        "policy.device": "cpu",
        "policy.n_action_steps": "10",
        "env.type": "libero",
        "env.task": "libero_spatial,libero_goal",
        "env.task_ids": "[3, 0]",
        "env.camera_name_mapping": '{"agentview_image": "camera1", "robot0_eye_in_hand_image": "camera2"}',
        "env.observation_height": "256",
        "env.observation_width": "256",
        "env.control_mode": "absolute",
        "env.max_parallel_tasks": "2",
        "eval.n_episodes": "20",
        "eval.batch_size": "5",
        "seed": "7",
        "output_dir": "out/here",
        "job_name": "unused",
        "rename_map": '{"observation.images.camera1": "observation.images.top"}',
    }
    arguments = [a for k, v in pairs.items() for a in ((f"--{k}", v) if spaced else (f"--{k}={v}",))]
    found = settings(*arguments)
    assert found.policy.name == "lerobot:ckpt"
    assert found.policy.policy_arg == {
        **ANY_SIZE,
        "device": "cpu",
        "n_action_steps": 10,
        "rename": {
            "observation.images.top": "observation.images.image",
            "observation.images.camera2": "observation.images.image2",
        },
    }
    assert found.plan.task == "libero_spatial/0,libero_spatial/3,libero_goal/0,libero_goal/3"
    assert found.plan.benchmark_arg == {"resolution": 256, "control": "absolute"}
    assert (found.plan.episodes, found.plan.slots, found.plan.max_parallel_tasks, found.plan.seed) == (20, 10, 2, 7)
    assert found.output.folder == Path("out/here")
    plan = make_plan(found)
    assert [(task.group, task.number) for task in plan.tasks["libero"]] == [
        ("libero_spatial", 0), ("libero_spatial", 3), ("libero_goal", 0), ("libero_goal", 3)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("batch", "episodes", "slots"), [("0", "50", "auto"), ("1", "50", 1), ("8", "50", 8), ("50", "3", 3)]
)
def test_a_batch_is_so_many_simulators_at_once(batch: str, episodes: str, slots: int | str) -> None:
    found = settings(*METAWORLD, f"--eval.batch_size={batch}", f"--eval.n_episodes={episodes}")
    assert found.plan.slots == slots


def test_the_output_folder_is_named_as_lerobot_names_it(tmp_path: Path) -> None:
    checkpoint = tmp_path / "005000" / "pretrained_model"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text(json.dumps({"type": "diffusion"}))
    for path in (checkpoint, checkpoint.parent):
        found = settings(f"--policy.path={path}", *METAWORLD[1:])
        assert found.output.folder == Path("outputs/eval/2026-11-16/05-04-03_metaworld_diffusion")
    assert settings(*METAWORLD, "--job_name=mine").output.folder == Path("outputs/eval/2026-11-16/05-04-03_mine")
    assert settings("--policy.path=a/b@v2", *METAWORLD[1:]).output.folder == Path(
        "outputs/eval/2026-11-16/05-04-03_metaworld_b"
    )


def test_of_a_checkpoint_s_configuration_so_much_is_read_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"type": "diffusion"}))
    for most, name in ((21, "diffusion"), (20, tmp_path.name)):
        monkeypatch.setattr(lerobot_flags, "_MOST_CONFIG", most)
        found = settings(f"--policy.path={tmp_path}", *METAWORLD[1:])
        assert found.output.folder == Path(f"outputs/eval/2026-11-16/05-04-03_metaworld_{name}")


def test_other_settings_of_the_policy_are_passed_on() -> None:
    found = settings(*METAWORLD, "--policy.temporal_ensemble_coeff=0.01", "--policy.use_amp=true")
    assert found.policy.policy_arg == {"temporal_ensemble_coeff": 0.01, "use_amp": True, **ANY_SIZE}
    assert settings(*METAWORLD, "--policy.any_resolution=false").policy.policy_arg == {"any_resolution": False}


def test_a_revision_is_part_of_the_hub_id(tmp_path: Path) -> None:
    found = settings(*METAWORLD, "--policy.pretrained_revision=v2")
    assert (found.policy.name, found.policy.policy_arg) == ("lerobot:me/act@v2", ANY_SIZE)
    for path in (str(tmp_path), "me/act@v1"):
        with pytest.raises(UsageError, match=r"pretrained_revision=v2 is for a checkpoint on the hub"):
            translated(f"--policy.path={path}", *METAWORLD[1:], "--policy.pretrained_revision=v2")


def test_a_camera_that_the_checkpoint_does_not_look_at_needs_no_name(tmp_path: Path) -> None:
    features = {"observation.images.camera1": {"type": "VISUAL", "shape": [3, 256, 256]}}
    (tmp_path / "config.json").write_text(json.dumps({"type": "act", "input_features": features}))
    mapping = '{"agentview_image": "camera1", "robot0_eye_in_hand_image": "camera2"}'
    found = settings(f"--policy.path={tmp_path}", "--env.type=libero", f"--env.camera_name_mapping={mapping}")
    assert found.policy.policy_arg == {"rename": {"observation.images.camera1": "observation.images.image"}, **ANY_SIZE}


def test_what_lerobot_names_twice_is_renamed_by_its_last_name() -> None:
    found = settings(*METAWORLD, '--rename_map={"observation.image": "observation.images.top"}')
    assert found.policy.policy_arg == {"rename": {"observation.images.top": "observation.image"}, **ANY_SIZE}


def test_shorter_episodes_of_libero() -> None:
    assert settings(*LIBERO, "--env.task=libero_goal", "--env.episode_length=300").plan.rules.max_steps == 300
    with pytest.raises(UsageError, match="more than the 300 steps that libero_goal has"):
        settings(*LIBERO, "--env.task=libero_goal", "--env.episode_length=301")


def test_pusht_is_what_lerobot_makes_of_it() -> None:
    found = translated(*PUSHT)
    assert found.notes == []
    plan = found.settings.plan
    assert (plan.benchmark, plan.task, plan.benchmark_arg) == ("pusht", "PushT-v0", {"max_steps": 300})
    (task,) = make_plan(found.settings).tasks["pusht"]
    assert (task.group, task.number) == ("pusht", 0), "where LeRobot's eval_info.json has it"
    longer = settings(*PUSHT, "--env.task=PushT-v0", "--env.episode_length=500")
    assert longer.plan.benchmark_arg == {"max_steps": 500}
    assert longer.plan.rules.max_steps == 0


def test_aloha_is_what_lerobot_makes_of_it() -> None:
    flags = ("--policy.path=me/act", "--env.type=aloha")
    found = translated(*flags)
    assert found.notes == []
    plan = found.settings.plan
    assert (plan.benchmark, plan.task, plan.benchmark_arg) == ("aloha", "AlohaInsertion-v0", {"max_steps": 400})
    cube = translated(*flags, "--env.task=AlohaTransferCube-v0", "--env.observation_width=640", "--env.fps=50")
    assert cube.notes == [
        "--env.fps changes nothing here: ALOHA has 50 steps per second, and LeRobot has no use for it either",
        "--env.observation_width changes nothing here: LeRobot does not hand it to ALOHA either; images are 480×640",
    ]
    (task,) = make_plan(cube.settings).tasks["aloha"]
    assert (task.name, task.group, task.number) == ("AlohaTransferCube-v0", "aloha", 0), (
        "as in LeRobot, whichever it is"
    )


def test_flags_that_lerobot_does_not_hand_to_pusht_are_said_to_change_nothing() -> None:
    sizes = ("--env.observation_height=384", "--env.observation_width=384", "--env.visualization_width=384")
    found = translated(*PUSHT, *sizes, "--env.fps=10", "--env.obs_type=environment_state_agent_pos")
    assert found.notes == [
        "--env.obs_type changes nothing here: a policy sees what it asks for",
        "--env.fps changes nothing here: PushT has 10 steps per second, and LeRobot has no use for it either",
        "--env.observation_height changes nothing here: LeRobot does not hand it to PushT either; images are 96×96",
        "--env.observation_width changes nothing here: LeRobot does not hand it to PushT either; images are 96×96",
    ]
    assert found.settings.plan.benchmark_arg == {"max_steps": 300}


def test_groups_keep_the_names_they_were_given() -> None:
    plan = make_plan(settings(*METAWORLD[:2], "--env.task=metaworld-push-v3,hard"))
    tasks = plan.tasks["metaworld"]
    assert [(task.group, task.number, task.name) for task in tasks][:3] == [
        ("metaworld-push-v3", 0, "push-v3"), ("hard", 0, "assembly-v3"), ("hard", 1, "hand-insert-v3")
    ]  # fmt: skip
    assert [(task.number, task.name) for task in tasks][-1] == (5, "push-back-v3"), "a task that is named twice"


def test_sparrings_own_settings_win() -> None:
    found = settings(*METAWORLD, "--policy.device=cpu", video="none", slots=3, policy_arg={"threads": 1})
    assert (found.output.video, found.plan.slots, found.policy.policy_arg) == (
        "none",
        3,
        {"device": "cpu", "threads": 1, **ANY_SIZE},
    )
    assert settings(*METAWORLD, policy="expert").policy.policy_arg == {}, "another policy has no use for what follows"


def test_flags_that_change_nothing_are_said_to() -> None:
    found = translated(
        *METAWORLD, "--eval.use_async_envs=true", "--env.obs_type=pixels", "--env.fps=80", "--env.episode_length=400"
    )
    assert found.notes == [
        "--env.obs_type changes nothing here: a policy sees what it asks for",
        "--env.fps changes nothing here: a simulator has the rate of its benchmark: LIBERO 20, Meta-World 80",
        "--eval.use_async_envs changes nothing here: simulators always run in processes of their own",
        "--env.episode_length changes nothing here: LeRobot does not hand it to Meta-World either; episodes have up to "
        "500 steps",
    ]
    assert found.settings.plan.rules.max_steps == 0
    assert translated(*METAWORLD).notes == []


def test_what_lerobot_would_do_anyway_may_be_said() -> None:
    found = translated(
        *LIBERO, "--eval.recording=false", "--eval.recording_repo_id=null", "--eval.recording_private=False",
        "--env.is_libero_plus=false", "--env.init_states=True", "--job_name=null",
    )  # fmt: skip
    assert found.notes == []
    assert found.settings.output.folder == Path("outputs/eval/2026-11-16/05-04-03_libero_pi0")


def test_names_are_taken_as_they_are() -> None:
    found = settings("--policy.path=005000", "--env.type=metaworld", "--env.task", "reach-v3", "--job_name=1e3")
    assert found.policy.name == "lerobot:005000"
    assert found.output.folder == Path("outputs/eval/2026-11-16/05-04-03_1e3")


@pytest.mark.parametrize("kind", ["yaml", "json"])
def test_a_configuration_file_and_flags_that_win_over_it(kind: str, tmp_path: Path) -> None:
    content = {
        "policy": {"path": "me/act", "n_action_steps": 5},
        "env": {
            "type": "libero",
            "task": "libero_goal",
            "task_ids": [1],
            "camera_name_mapping": {"agentview_image": "x"},
        },
        "eval": {"n_episodes": 3, "batch_size": 2},
        "seed": 5,
    }
    file = tmp_path / f"eval.{kind}"
    file.write_text(json.dumps(content) if kind == "json" else yaml.safe_dump(content))
    found = settings(f"--config_path={file}", "--seed=6", "--policy.n_action_steps=7")
    assert (found.policy.name, found.plan.task, found.plan.episodes, found.plan.slots) == (
        "lerobot:me/act",
        "libero_goal/1",
        3,
        2,
    )
    assert found.plan.seed == 6
    assert found.policy.policy_arg == {
        "n_action_steps": 7, "rename": {"observation.images.x": "observation.images.image"}, **ANY_SIZE
    }  # fmt: skip
    file.write_text(json.dumps({**content, "eval": {"n_episode": 3}}))
    with pytest.raises(UsageError, match=r"unknown flag '--eval.n_episode'. Did you mean '--eval.n_episodes'"):
        settings(f"--config_path={file}")
    file.write_text("just words")
    with pytest.raises(UsageError, match="does not hold settings by name"):
        settings(f"--config_path={file}")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--env.type=metaworld", "--env.task=reach-v3"), "--policy.path is missing"),
        (METAWORLD[:1], "--env.type is missing"),
        (METAWORLD[:2], "--env.task is missing; see: sparring ls tasks --benchmark metaworld"),
        (
            (*METAWORLD[:1], "--env.type=robocasa"),
            "unknown --env.type 'robocasa'. Known: aloha, libero, metaworld, pusht",
        ),
        ((*PUSHT, "--env.control_mode=absolute"), "--env.control_mode is for --env.type=libero; LeRobot has no use"),
        ((*PUSHT, "--env.fps=80"), "--env.fps can only be 10 here: PushT has 10 steps per second"),
        ((*PUSHT, "--env.visualization_width=96"), "--env.visualization_width can only be 384 here"),
        ((*PUSHT, "--env.episode_length=0"), "--env.episode_length must be a whole number of at least 1, not 0"),
        ((*METAWORLD, "--env.visualization_width=384"), "--env.visualization_width is for --env.type=pusht"),
        ((*METAWORLD, "--eval.n_episode=3"), r"unknown flag '--eval.n_episode'. Did you mean '--eval.n_episodes'"),
        ((*METAWORLD, "--evaluate"), "unknown flag '--evaluate'"),
        ((*METAWORLD, "--max-steps", "20"), "Flags of `sparring run` stand after a lone --"),
        ((*METAWORLD, "--policy.=3"), "unknown flag '--policy.'"),
        ((*METAWORLD, "reach"), "'reach' is not a flag"),
        ((*METAWORLD, "--seed"), "--seed has no value"),
        ((*METAWORLD, "--seed", "--job_name=x"), "--seed has no value"),
        ((*METAWORLD, "--seed=null"), "--seed must be a whole number of at least 0, not null"),
        ((*METAWORLD, "--eval.n_episodes=0"), "--eval.n_episodes must be a whole number of at least 1, not 0"),
        ((*METAWORLD, "--eval.batch_size=many"), '--eval.batch_size must be a whole number of at least 0, not "many"'),
        ((*METAWORLD, "--env.task_ids=[1]"), "--env.task_ids is for --env.type=libero"),
        ((*METAWORLD, "--env.observation_height=64"), "--env.observation_height is for --env.type=libero"),
        ((*METAWORLD, "--rename_map=[1"), "the value of --rename_map cannot be read"),
        ((*METAWORLD, "--rename_map=[1]"), "--rename_map must map names to names"),
        ((*METAWORLD, '--rename_map={"observation.imag": "x"}'), "Did you mean 'observation.image'"),
        ((*METAWORLD, "--env.obs_type=state"), '--env.obs_type can only be "pixels" or "pixels_agent_pos" here'),
        ((*METAWORLD, "--config_path=x.yaml"), "--config_path 'x.yaml' cannot be read: No such file"),
        ((*METAWORLD, "--env.features={}"), "--env.features is not taken here"),
        ((*METAWORLD, "--policy.type=act"), "give --policy.path"),
        ((*METAWORLD, "--eval.recording=true"), "sparring run --record"),
        ((*LIBERO, "--env.observation_height=128"), "--env.observation_width=360 differ; images are square here"),
        ((*LIBERO, "--env.control_mode=sideways"), "must be relative or absolute"),
        ((*LIBERO, "--env.task_ids=3"), r"must be a list of numbers, like \[0,3\], not 3"),
        ((*LIBERO, "--env.task_ids=[]"), "must be a list of numbers"),
        ((*LIBERO, "--env.task=libero_10/2", "--env.task_ids=[1]"), "names single tasks already"),
        ((*LIBERO, '--env.camera_name_mapping={"agentvew_image": "x"}'), "Did you mean 'agentview_image'"),
        ((*LIBERO, "--env.init_states=false"), "--env.init_states can only be true here"),
        ((*LIBERO, "--env.hard_reset=false"), "--env.hard_reset can only be true here"),
        ((*LIBERO, "--env.fps=10"), "--env.fps can only be 20 or 30 or 80 here"),
        ((*LIBERO, "--env.camera_name=agentview_image"), "--env.camera_name can only be"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        translated(*arguments)


def test_task_ids_that_a_suite_does_not_have_are_a_sentence() -> None:
    with pytest.raises(UsageError, match="libero_10 has tasks 0 to 9"):
        make_plan(settings(*LIBERO, "--env.task_ids=[10]"))
