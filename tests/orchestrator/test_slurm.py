"""What is said to Slurm, and what is read of its answers. Needs no Slurm: tests/slurm has runs on a real one."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import Sparring

from sparring.orchestrator.launchers.base import LaunchFailed
from sparring.orchestrator.launchers.slurm import commands
from sparring.orchestrator.launchers.slurm.job import Job, JobEnd
from sparring.orchestrator.launchers.slurm.part_workers import PartWorkers
from sparring.orchestrator.launchers.slurm.script import (
    BatchScript,
    comment,
    job_name,
    leave_seconds,
    log_pattern,
    numbers,
    read_comment,
    worker_name,
)
from sparring.orchestrator.launchers.slurm.settings import SlurmSettings
from sparring.orchestrator.launchers.slurm.steps import check_room, step_command
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.settings import read_settings
from sparring.protos.errors import UsageError

BASE: dict[str, Any] = {"benchmark": "toy", "task": "good", "policy": "zero", "launcher": "slurm"}


def script(folder: Path, **options: str) -> BatchScript:
    return BatchScript(
        label="toy",
        name="sparring-toy-first-abc",
        comment='sparring me/1/2/3 /a "b"/c',
        folder=folder,
        log=log_pattern(folder / "logs", "toy"),
        slots=8,
        options=options,
        token=folder / "slurm" / "abc.token",
        ca=folder / "slurm" / "abc.pem",
        command=["python", "-m", "sparring.env_worker", "--orchestrator=tls://login:50052"],
    )


def test_the_script_asks_for_an_array_and_becomes_the_worker(tmp_path: Path) -> None:
    text = script(tmp_path, partition="gpu", exclusive="true", time="10").text([0, 1, 2, 5])
    lines = text.splitlines()
    assert lines[0] == "#!/bin/sh"
    for line in ("--array=0-2,5", "--cpus-per-task=8", "--partition=gpu", "--exclusive", "--signal=B:USR1@120"):
        assert f"#SBATCH {line}" in lines
    assert r'#SBATCH --comment="sparring me/1/2/3 /a \"b\"/c"' in lines
    assert lines[-1].startswith("exec python -m sparring.env_worker --orchestrator=tls://login:50052 ")


@pytest.mark.parametrize("restarts", ["", "2"])
def test_a_worker_has_the_name_that_is_waited_for(tmp_path: Path, restarts: str) -> None:
    folder = tmp_path / "it's a folder"
    (folder / "slurm").mkdir(parents=True)
    made = script(folder)
    (folder / "slurm" / "abc.token").touch()
    text = made.text([3]).replace("exec python", "exec echo")
    variables = {"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3", "PATH": "/usr/bin:/bin"}
    if restarts:
        variables["SLURM_RESTART_COUNT"] = restarts
    said = subprocess.run(["sh"], input=text, env=variables, capture_output=True, text=True, check=True, timeout=30)
    assert said.stdout.rstrip("\n").endswith(f"--name={worker_name('toy', '12_3', int(restarts or 0))}")
    assert f"--join-token-file={made.token} --ca={made.ca}" in said.stdout, "names with blanks and quotes are whole"


def test_the_log_of_a_job_is_found_where_slurm_writes_it(tmp_path: Path) -> None:
    made = script(tmp_path / "100%")
    assert "100%%/logs/worker-toy-%A_%a.log" in made.text([0])
    assert made.log_of("12_3") == tmp_path / "100%" / "logs" / "worker-toy-12_3.log"


def test_a_job_says_what_it_is_and_whose(tmp_path: Path) -> None:
    assert job_name("toy", Path("/a/my first run"), "3f9a2c") == "sparring-toy-my-first-run-3f9a2c"
    assert read_comment(comment("host/boot/1/2", Path("/a/my run"))) == ("host/boot/1/2", "/a/my run")
    assert read_comment("somebody else's") is None
    assert read_comment("") is None


@pytest.mark.parametrize(("places", "text"), [([0], "0"), ([0, 1, 2], "0-2"), ([7, 0, 1, 3], "0-1,3,7")])
def test_the_numbers_of_an_array(places: list[int], text: str) -> None:
    assert numbers(places) == text


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("", 120), ("1", 12), ("2:30", 30), ("0:10:00", 120), ("1-0", 120), ("00:00:03", 1), ("UNLIMITED", 120)],
)
def test_workers_leave_before_their_time_is_over_but_not_at_its_beginning(time: str, seconds: int) -> None:
    assert leave_seconds(time) == seconds


def test_settings_are_text_whatever_they_look_like() -> None:
    given = {"time": "1:00:00", "mem_per_cpu": "4G", "exclusive": True, "cpus-per-task": 3}
    own = read_settings({**BASE, "slurm": given}).worker.own
    assert isinstance(own, SlurmSettings)
    assert own.slurm == {"time": "1:00:00", "mem-per-cpu": "4G", "exclusive": "true", "cpus-per-task": "3"}


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"array": "0-3"}, "`workers` says that"),
        ({"output": "x"}, "`slurm_folder` says that"),
        ({"wrap": "rm"}, "the launcher sets it"),
        ({"p": "gpu"}, "no long option"),
        ({"time": 3600}, "in quotes in a file"),
        ({"partition": ""}, "has no value"),
        ({"partition": "a\nb"}, "has no value"),
    ],
)
def test_options_that_are_not_the_users_to_give(given: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        read_settings({**BASE, "slurm": given})


def test_a_time_on_the_command_line_stays_a_time(usage: Sparring) -> None:
    run = ("run", "--benchmark", "toy", "--task", "good", "--policy", "zero", "--launcher", "slurm", "--dry-run")
    done = usage(*run, "--workers", "16", "--slots-per-worker", "8", "--slurm", "time=1:00:00", "--episodes", "100")
    assert done.returncode == 0, done.stderr
    assert "slots: 128: as the launcher slurm is told" in done.stdout
    for line in ("#SBATCH --time=1:00:00", "#SBATCH --array=0-15", "#SBATCH --cpus-per-task=8"):
        assert line in done.stdout
    done = usage(*run, "--slots", "4")
    assert done.returncode == 2
    assert "--slots is of no use with --launcher slurm: give --workers and --slots-per-worker" in done.stderr
    done = usage(*run[:5], *run[7:], "--policy-server", "localhost:50051")
    assert "--policy-server localhost:50051 means another machine to workers of a cluster" in done.stderr


@pytest.mark.parametrize("flag", ["--output", "--slurm-folder"])
def test_a_folder_whose_name_would_be_run_as_a_command_is_refused(usage: Sparring, flag: str) -> None:
    run = ("run", "--benchmark", "toy", "--task", "good", "--policy", "zero", "--launcher", "slurm", "--dry-run")
    done = usage(*run, flag, "a\ntouch pwned\n#")
    assert done.returncode == 2
    assert "has characters that a batch script cannot have" in done.stderr
    assert "#SBATCH" not in done.stdout


def test_without_slurm_it_is_said_in_a_sentence(
    usage: Sparring, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = usage("run", "--benchmark", "toy", "--task", "good", "--policy", "zero", "--launcher", "slurm")
    assert done.returncode == 2
    assert "there is no Slurm on this machine: its command 'sbatch' is not found" in done.stderr


def test_steps_ask_for_exactly_what_they_need() -> None:
    own = SlurmSettings(slots_per_worker=3, slurm={"gres": "gpu:1"})
    command = step_command(own, "toy-0-0", ["python", "-m", "worker"])
    assert command[:3] == ["srun", "--exact", "--unbuffered"]
    assert {"--cpus-per-task=3", "--gres=gpu:1", "--ntasks=1", "--mem=0"} < set(command)
    assert command[-4:] == ["step of worker toy-0-0", "python", "-m", "worker"]
    command = step_command(SlurmSettings(slurm={"mem-per-cpu": "2G"}), "toy-0-0", ["worker"])
    assert "--mem-per-cpu=2G" in command
    assert "--mem=0" not in command, "Slurm takes one of them"


def row(*values: str) -> str:
    widths = [int(column.rpartition(":")[2]) for column in Job.COLUMNS.split(",")]
    return "".join(value.ljust(width) for value, width in zip(values, widths, strict=True))


@pytest.mark.parametrize(
    ("cores", "settings", "said"),
    [
        ("1", {"slots_per_worker": 8}, "needs 8 cores of one node, and this allocation has at most 1 on a node"),
        ("2(x3),4", {"slots_per_worker": 5}, "at most 4 on a node"),
        ("2(x3),4", {"slots_per_worker": 4}, ""),
        ("1", {"slots_per_worker": 8, "slurm": {"cpus-per-task": "1"}}, ""),
        ("1", {"slots_per_worker": 8, "slurm": {"overcommit": "true"}}, ""),
        ("", {"slots_per_worker": 8}, ""),
    ],
)
def test_an_allocation_without_room_for_a_worker_is_told_at_once(
    cores: str, settings: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", cores)
    if said:
        with pytest.raises(UsageError, match=said):
            check_room(SlurmSettings(**settings))
    else:
        check_room(SlurmSettings(**settings))


@pytest.mark.parametrize(
    ("cores", "step", "has", "refused"),
    [
        ("4", "0", "CPUs=4", True),  # the shell of `srun --pty`
        ("4", "0", "CPUs=3", False),
        ("2(x2)", "0", "CPUs=2", False),
        ("2(x2)", "0", "CPUs=4", True),
        ("4", "4294967290", "CPUs=4", False),  # that of a salloc whose site has one
        ("4", "", "CPUs=4", False),  # a batch script
        ("4", "0", "slurm_get_job_steps error", False),
    ],
)
def test_a_step_that_has_the_cores_itself_is_told_instead_of_waited_for(
    cores: str, step: str, has: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step would ever begin beside it; tests/slurm has a real one."""
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho StepId=7.0 {has} Tasks=1\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, value in {"JOB_ID": "7", "STEP_ID": step, "JOB_CPUS_PER_NODE": cores}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    if refused:
        with pytest.raises(UsageError, match="Begin with salloc instead"):
            check_room(SlurmSettings(slots_per_worker=1))
    else:
        check_room(SlurmSettings(slots_per_worker=1))


def test_squeue_is_read_by_its_columns() -> None:
    told = "\n".join(
        [
            row("12_0", "RUNNING", "1", "sparring-toy-a-1", "n1", "None"),
            row("12_1", "PENDING", "0", "sparring-toy-a-1", "", "ReqNodeNotAvail, UnavailableNodes:n2"),
            row("12_2", "TIMEOUT", "0", "sparring-toy-a-1", "n3", "TimeLimit"),
            "",
        ]
    )
    first, second, third = Job.table(told)
    assert (first.number, first.task, first.restarts, first.nodes, first.has_ended) == ("12_0", 0, 1, "n1", False)
    assert second.reason == "ReqNodeNotAvail, UnavailableNodes:n2"
    assert not second.is_hopeless
    assert third.has_ended


@pytest.mark.parametrize(
    ("reason", "hopeless", "waits_for_somebody"),
    [
        ("PartitionTimeLimit", True, True),
        ("QOSMaxWallDurationPerJobLimit", True, True),
        ("QOSMaxGRESPerJob", True, True),
        ("QOSMinCpuNotSatisfied", True, True),
        ("AssocMaxCpuPerJobLimit", True, True),
        ("AssocMaxMemPerNode", True, True),
        ("QOSMaxCpuPerUserLimit", False, False),  # until another job of the same user has ended
        ("AssocMaxJobsLimit", False, False),
        ("AssocGrpCpuLimit", False, False),
        ("launch failed requeued held", False, True),
        ("JobHeldUser", False, True),
        ("Resources", False, False),
    ],
)
def test_what_a_job_waits_for_comes_or_never_does(reason: str, hopeless: bool, waits_for_somebody: bool) -> None:
    (job,) = Job.table(row("13_0", "PENDING", "0", "x", "", reason))
    assert (job.is_hopeless, job.waits_for_somebody) == (hopeless, waits_for_somebody)
    (job,) = Job.table(row("13_0", "RUNNING", "0", "x", "n1", reason))
    assert not job.is_hopeless


def test_what_is_asked_for_goes_before_variables_of_sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a script's lines alone it would not: SBATCH_PARTITION of a user's shell would silently win."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    made = script(tmp_path / "a b", partition="gpu", exclusive="true")
    told = commands.submit(made.text([0, 1])).splitlines()
    assert told[0] == "--parsable"
    for argument in ("--partition=gpu", "--exclusive", "--array=0-1", '--comment=sparring me/1/2/3 /a "b"/c'):
        assert argument in told
    assert f"--output={tmp_path}/a b/logs/worker-toy-%A_%a.log" in told


SHOWN = (
    "JobId=14 ArrayJobId=12 ArrayTaskId=2 JobName=sparring-toy-a-1 UserId=tester(1001) Priority=1 "
    "JobState={state} Reason={reason} Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={code} "
    "RunTime=00:01:30 TimeLimit=00:01:00 NodeList=n2 Comment=sparring JobState=LIES Command=(null)"
)


@pytest.mark.parametrize(
    ("state", "reason", "code", "words"),
    [
        ("TIMEOUT", "TimeLimit", "0:0", "reached its time limit on n2 after 00:01:30 (TIMEOUT, TimeLimit)"),
        ("CANCELLED", "None", "0:15", "was cancelled on n2 after 00:01:30 (CANCELLED)"),
        ("FAILED", "NonZeroExitCode", "1:0", "failed on n2 after 00:01:30 (FAILED, exit code 1, NonZeroExitCode)"),
        ("NODE_FAIL", "None", "1:0", "lost its node on n2 after 00:01:30 (NODE_FAIL, exit code 1)"),
        ("OUT_OF_MEMORY", "OutOfMemory", "0:125", "ran out of memory on n2"),
        ("PREEMPTED", "None", "0:0", "was preempted on n2"),
        ("COMPLETED", "None", "0:0", "ended by itself on n2"),
    ],
)
def test_how_a_job_ended_is_told_in_words(state: str, reason: str, code: str, words: str) -> None:
    end = JobEnd.of_details(SHOWN.format(state=state, reason=reason, code=code))
    assert end.state == state
    assert str(end).startswith(words)
    accounted = JobEnd.of_accounting(f"RUNNING|0:0||1\n{state}|{code}|n2|00:01:30\n")
    assert accounted == replace(end, reason=""), "accounting has no reason for an end"


def test_a_job_that_slurm_has_forgotten_is_told_as_that() -> None:
    assert str(JobEnd.of_accounting("")) == "is gone, and Slurm does not say why"
    assert JobEnd.of_accounting("CANCELLED by 1001|0:0|n2|00:00:01").state == "CANCELLED"


SHOWS = f"echo '{SHOWN.format(state='TIMEOUT', reason='TimeLimit', code='0:0')}'"
FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
AWAY = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
ACCOUNTS = "echo 'OUT_OF_MEMORY|0:125|n2|00:01:30'"
NO_ACCOUNTS = "echo 'Slurm accounting storage is disabled' >&2; exit 1"


@pytest.mark.parametrize(
    ("scontrol", "sacct", "state"),
    [
        (SHOWS, ACCOUNTS, "TIMEOUT"),
        (FORGOTTEN, ACCOUNTS, "OUT_OF_MEMORY"),
        (FORGOTTEN, NO_ACCOUNTS, "UNKNOWN"),
        (AWAY, ACCOUNTS, "UNKNOWN"),
    ],
    ids=["shown", "accounted", "no accounts", "away"],
)
def test_why_a_job_ended_is_asked_of_the_controller_and_then_of_the_accounting(
    scontrol: str, sacct: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, does in {"scontrol": scontrol, "sacct": sacct}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert commands.end_of("12_2", "").state == state


def test_a_node_that_cannot_write_the_log_is_known_by_its_signal() -> None:
    assert JobEnd.of_details(SHOWN.format(state="FAILED", reason="None", code="0:53")).cannot_be_logged


def workers(places: int = 4, slots: int = 2, max_restarts: int = 2) -> PartWorkers:
    return PartWorkers("toy", places, slots, max_restarts=max_restarts, rules=RetryRules())


LOST = JobEnd("NODE_FAIL", nodes="n2")
BROKEN = JobEnd("FAILED", code=1)


def test_no_more_is_submitted_than_can_be_needed() -> None:
    made = workers()
    assert made.to_submit(100, 0.0) == [0, 1, 2, 3]
    assert made.to_submit(5, 0.0) == [0, 1, 2]
    assert made.to_submit(0, 0.0) == []
    made.submitted([0, 1, 2], "12")
    assert made.to_submit(100, 0.0) == [3]
    assert made.to_submit(6, 0.0) == []


def test_what_still_waits_and_cannot_be_needed_any_more_is_taken_back() -> None:
    made = workers()
    made.submitted([0, 1, 2, 3], "12")
    waiting = {"12_1", "12_2", "12_3"}
    assert [place.number for place in made.superfluous(4, waiting)] == [3, 2]
    assert made.superfluous(100, waiting) == []
    assert made.superfluous(0, waiting) == [], "nobody knows what comes next"


def end(
    made: PartWorkers, place: int, how: JobEnd, *, results: int = 0, now: float = 0.0, others: bool = False
) -> float:
    made.submitted([place], "12")
    return made.ended(made.places[place], how, results=results, now=now, last_words="last words", others=others)


def test_a_job_that_ended_early_is_replaced_after_a_pause_that_grows() -> None:
    made = workers(places=1)
    pause = end(made, 0, LOST, now=10.0)
    assert made.to_submit(1, 10.0) == []
    assert made.to_submit(1, 10.0 + pause) == [0]
    assert end(made, 0, LOST, now=10.0) > pause
    assert end(made, 0, LOST, results=3, now=10.0) < pause, "it was of use"


def test_a_place_of_which_nothing_comes_is_given_up_and_the_last_ends_the_run() -> None:
    made = workers(places=2, max_restarts=1)
    end(made, 0, LOST)
    end(made, 0, LOST)
    assert made.places[0].is_given_up
    assert made.to_submit(100, 100.0) == [1]
    end(made, 1, LOST)
    with pytest.raises(LaunchFailed, match=r"no worker of toy is left.*lost its node on n2(?s:.*)last words"):
        end(made, 1, LOST)


def test_workers_that_fail_by_themselves_end_the_run_soon_but_not_those_that_somebody_ended() -> None:
    made = workers(places=9)
    for place in range(9):
        end(made, place, LOST)
    for place in range(4):
        end(made, place, BROKEN)
    with pytest.raises(LaunchFailed, match="die before they finish an episode, 5 times in a row"):
        end(made, 4, BROKEN)
    made = workers(places=9)
    for place in range(8):
        end(made, place, BROKEN, results=place % 4)


def test_a_node_that_breaks_whatever_comes_there_does_not_end_the_run_of_the_others() -> None:
    made = workers(places=2, max_restarts=5)
    made.submitted([1], "11")
    for _ in range(6):
        end(made, 0, BROKEN, others=True)
    assert [place.is_given_up for place in made.places] == [True, False]
    assert made.places[1].job == "11_1"


def test_a_job_that_slurm_starts_again_and_again_without_a_result_may_not_go_on() -> None:
    made = workers(max_restarts=1)
    made.submitted([0], "12")
    place = made.places[0]
    assert made.started_again(place, 1, results=0)
    assert made.started_again(place, 2, results=4)
    assert made.started_again(place, 3, results=0)
    assert not made.started_again(place, 4, results=0)


def test_every_word_of_the_step_is_one_argument() -> None:
    own = SlurmSettings(slurm={"comment-free": "a b"})
    assert "--comment-free=a b" in shlex.split(shlex.join(step_command(own, "n", ["p"])))
