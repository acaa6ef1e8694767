"""`sparring preflight` as users type it: what it says, its exit codes, JSON, and policies of which nothing is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from policy_processes import PolicyProcess
from support import Sparring

from sparring import Preflight, UsageError, preflight
from sparring.orchestrator.preflight.preflight import PreflightRequest
from sparring.orchestrator.settings import read_settings

TOY = ("preflight", "--benchmark", "toy", "--task", "short", "--in-process", "--steps", "8")


@pytest.mark.parametrize("policy", ["expert", "random", "toy_policies:Wanderer", "seeing_policies:Reader"])
@pytest.mark.parametrize("task", ["short", "long"])
def test_a_right_set_up_has_no_finding(usage: Sparring, policy: str, task: str) -> None:
    done = usage(*TOY, "--policy", policy, "--task", task)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failed" in done.stdout


def test_what_cannot_be_checked_is_said_with_what_would_tell(usage: Sparring) -> None:
    done = usage(*TOY, "--policy", "expert")
    lines = done.stdout.splitlines()
    place = next(n for n, line in enumerate(lines) if "position: it begins as in training" in line)
    assert lines[place].startswith("skipped")
    assert "--dataset would tell" in lines[place + 1]


def test_what_does_not_fit_is_a_finding_with_what_to_set(usage: Sparring) -> None:
    done = usage(*TOY, "--policy", "toy_policies:OtherImages", "--json")
    assert done.returncode == 3
    said = json.loads(done.stdout)
    assert said["findings"] == 1
    (check,) = said["checks"]
    assert (check["verdict"], check["rule"][:35]) == ("found", "The policy and the benchmark fit to")
    assert {"setting": "benchmark_arg", "key": "resolution", "value": 224} in check["set"]
    assert "--benchmark-arg resolution=224" in check["detail"]


def test_a_blank_image_is_found_whatever_is_known(usage: Sparring) -> None:
    done = usage(*TOY, "--policy", "random", "--policy-arg", "observations=[image]")
    assert done.returncode == 3
    assert "image: the image shows something.\n         the first image of episode 0 has 1 shades" in done.stdout
    fine = usage(*TOY, "--policy", "random", "--policy-arg", "observations=[image]", "--benchmark-arg", "noise=16")
    assert fine.returncode == 0, fine.stdout


def test_a_robot_that_does_not_move_is_found(usage: Sparring) -> None:
    done = usage(*TOY, "--policy", "toy_policies:Forward", "--policy-arg", "gain=0.001")
    assert done.returncode == 3
    assert "the robot does not move. Bring actions to the action space" in done.stdout
    far = usage(*TOY, "--policy", "toy_policies:Forward", "--policy-arg", "gain=1000")
    assert "times as large as the action space" in far.stdout


def test_a_name_for_a_sentence_is_found_if_the_policy_reads_it(usage: Sparring) -> None:
    named = ("--benchmark", "seeing_policies:NamedTasks", "--task", "pick_place-v3")
    read = usage(*TOY, *named, "--policy", "seeing_policies:Reader")
    assert read.returncode == 3
    assert "it is 'pick_place-v3': a name" in read.stdout
    unread = usage(*TOY, *named, "--policy", "expert")
    assert unread.returncode == 0, unread.stdout
    assert "the policy does not read it" in unread.stdout


def test_usage_errors_are_no_findings(usage: Sparring, tmp_path: Path) -> None:
    assert usage(*TOY, "--policy", "nobody").returncode == 2
    none = usage(*TOY, "--policy", "expert", "--dataset", str(tmp_path))
    assert none.returncode == 2
    assert "is no LeRobotDataset" in none.stderr


def test_a_policy_that_breaks_could_not_be_played(usage: Sparring) -> None:
    done = usage(*TOY, "--policy", "toy_policies:NeverWorks")
    assert done.returncode == 1
    assert "this cannot work" in done.stderr


def test_the_same_from_python() -> None:
    found = preflight(policy="expert", benchmark="toy", task="good", steps=8, in_process=True)
    assert isinstance(found, Preflight)
    assert (found.findings, found.task) == ([], "short")
    with pytest.raises(UsageError, match="unknown setting"):
        preflight(policy="expert", benchmark="toy", task="good", stepps=8)


def test_a_protocols_settings_are_those_that_are_looked_at(tmp_path: Path) -> None:
    given = {"policy": "zero", "benchmark": "metaworld", "task": "reach-v3", "protocol": "lerobot-0.6"}
    wanted = PreflightRequest(tmp_path, given, steps=16).settings.plan
    by_protocol = read_settings(given).plan
    assert wanted.parts[0].benchmark_arg == by_protocol.parts[0].benchmark_arg
    assert wanted.parts[0].benchmark_arg["resolution"] == 480
    assert (wanted.seed, wanted.rules.max_steps) == (by_protocol.seed, 16)


@pytest.mark.processes
def test_a_hosted_policy_is_asked_when_its_workers_have_gone(sparring: Sparring) -> None:
    """Its server has one place: whoever asks it later must not find a slot in there."""
    hosted = [argument for argument in TOY if argument != "--in-process"]
    done = sparring(*hosted, "--policy", "seeing_policies:Reader", "--json")
    assert done.returncode == 0, done.stderr
    kinds = {check["rule"]: check["verdict"] for check in json.loads(done.stdout)["checks"]}
    assert kinds["The instruction is a sentence, and not a task's name."] == "ok", "it was not asked"


@pytest.mark.processes
def test_a_policy_that_is_hosted_elsewhere(sparring: Sparring, tmp_path: Path) -> None:
    with PolicyProcess("--policy", "seeing_policies:Reader", folder=tmp_path / "server") as server:
        hosted = [argument for argument in TOY if argument != "--in-process"]
        done = sparring(*hosted, "--policy-server", server.address, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["policy"] == f"the policy at {server.address}"
    assert {check["rule"]: check["verdict"] for check in said["checks"]}["The policy moves the robot."] == "ok"
