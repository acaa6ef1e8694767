"""Workers from images without Docker: the exact command lines of Apptainer, Pyxis and Charliecloud.

Of these only Charliecloud is in Debian; tests/slurm/test_charliecloud.py runs it. The others are held against what
their manuals say.
"""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sparring.orchestrator.launchers.registry import get_launcher
from sparring.orchestrator.launchers.slurm.container import ContainedProgram, WorkerContainer, containers_of
from sparring.orchestrator.launchers.slurm.settings import SlurmSettings
from sparring.orchestrator.launchers.slurm.steps import step_command
from sparring.orchestrator.settings import read_settings
from sparring.protos.errors import UsageError

INSIDE = (
    "env -u PYTHONPATH -u PYTHONHOME -u SPARRING_VENVS -u SPARRING_HEARTBEAT -u XDG_CACHE_HOME PYTHONNOUSERSITE=1 "
    "HOME=/tmp{variables} sh -c "
    '\'PATH="/opt/venv/bin:$PATH:/usr/local/bin:/usr/bin:/bin"; export PATH; exec "$0" "$@"\' python -m worker'
)
WORKER = ["python", "-m", "worker"]
USER = pwd.getpwuid(os.getuid()).pw_name


def contained(text: str, **more: Any) -> ContainedProgram:
    return ContainedProgram(WorkerContainer.parse(text), Path("/shared/run/slurm"), **more)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (
            "apptainer:/shared/metaworld.sif",
            "apptainer exec --cleanenv --no-home --no-mount=cwd --bind=/shared/run/slurm:/mnt:ro /shared/metaworld.sif",
        ),
        (
            "apptainer:docker://ghcr.io/lab/metaworld:1",
            "apptainer exec --cleanenv --no-home --no-mount=cwd --bind=/shared/run/slurm:/mnt:ro "
            "docker://ghcr.io/lab/metaworld:1",
        ),
        (
            "singularity:/shared/metaworld.sif",
            "singularity exec --cleanenv --no-home --no-mount=cwd --bind=/shared/run/slurm:/mnt:ro "
            "/shared/metaworld.sif",
        ),
        (
            "pyxis:ghcr.io#lab/metaworld:1",
            "srun --ntasks=1 --cpus-per-task=1 '--container-image=ghcr.io#lab/metaworld:1' "
            "--container-mounts=/shared/run/slurm:/mnt:ro --no-container-mount-home",
        ),
        (
            "charliecloud:/shared/metaworld",
            f"env USER={USER} ch-run --bind=/shared/run/slurm:/mnt /shared/metaworld --",
        ),
    ],
)
def test_a_job_starts_its_worker_so(text: str, command: str) -> None:
    assert shlex.join(contained(text).started(WORKER)) == f"{command} {INSIDE.format(variables='')}"


def test_gpus_and_assets_are_shown_to_it() -> None:
    program = contained(
        "apptainer:/shared/libero.sif",
        folders=[Path("/data/libero")],
        variables={"SPARRING_LIBERO_ASSETS": "/data/libero"},
        options={"gres": "gpu:1"},
    )
    head = (
        'sh -c \'if [ -n "${CUDA_VISIBLE_DEVICES+x}" ]; then '
        'export APPTAINERENV_CUDA_VISIBLE_DEVICES="$CUDA_VISIBLE_DEVICES"; fi; exec "$0" "$@"\' '
        "apptainer exec --cleanenv --no-home --no-mount=cwd --nv --bind=/shared/run/slurm:/mnt:ro "
        "--bind=/data/libero:/data/libero:ro /shared/libero.sif"
    )
    inside = INSIDE.format(variables=" SPARRING_LIBERO_ASSETS=/data/libero")
    assert shlex.join(program.started(WORKER)) == f"{head} {inside}"


@pytest.mark.parametrize("kind", ["apptainer", "singularity"])
@pytest.mark.parametrize("given", ["2,3", "", None])
def test_it_sees_the_gpus_of_its_job_and_no_others(tmp_path: Path, kind: str, given: str | None) -> None:
    # Neither is in Debian: this stands for one, and tells what it is called with.
    runtime = tmp_path / kind
    runtime.write_text(f'#!/bin/sh\necho "$1 ${{{kind.upper()}ENV_CUDA_VISIBLE_DEVICES-unset}}"\n')
    runtime.chmod(0o700)
    command = contained(f"{kind}:/shared/libero.sif", options={"gpus": "gpu:1"}).started(WORKER)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}"} | (
        {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
    )
    told = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=30).stdout
    assert told == f"exec {'unset' if given is None else given}\n"


@pytest.mark.parametrize(("options", "cores"), [({}, 4), ({"cpus-per-task": "6"}, 6)])
def test_a_worker_by_pyxis_has_all_cores_of_its_job(options: dict[str, str], cores: int) -> None:
    command = contained("pyxis:lab/metaworld", options=options, slots=4).started(WORKER)
    assert command[:3] == ["srun", "--ntasks=1", f"--cpus-per-task={cores}"]


@pytest.mark.parametrize(("kind", "marks"), [("apptainer", ":,"), ("singularity", ":,"), ("pyxis", ":,")])
def test_folders_that_a_container_cannot_be_shown_are_refused(kind: str, marks: str) -> None:
    for mark in marks:
        bad = Path(f"/data/a{mark}b")
        with pytest.raises(UsageError, match=f"{kind} cannot show the folder '{bad}'"):
            contained(f"{kind}:lab/image", folders=[bad]).check()
        with pytest.raises(UsageError, match=f"cannot show the folder '{bad}/slurm'"):
            ContainedProgram(WorkerContainer.parse(f"{kind}:lab/image"), bad / "slurm").check()
    contained(f"{kind}:lab/image", folders=[Path("/data/a b")]).check()


def test_charliecloud_takes_a_comma_and_no_colon(tmp_path: Path) -> None:
    contained(f"charliecloud:{tmp_path}", folders=[Path("/data/a,b")]).check()
    with pytest.raises(UsageError, match="charliecloud cannot show the folder '/data/a:b'"):
        contained(f"charliecloud:{tmp_path}", folders=[Path("/data/a:b")]).check()


def test_a_run_is_refused_whose_folder_no_container_can_be_shown(tmp_path: Path) -> None:
    image = tmp_path / "toy.sif"
    image.touch()
    run = read_settings(
        {
            **{"benchmark": "toy", "task": "short", "policy": "zero", "launcher": "slurm"},
            **{"container": f"apptainer:{image}", "output": str(tmp_path / "lr=1,seed=2"), "advertise": "login"},
        }
    )
    with pytest.raises(UsageError, match=r"cannot show the folder '.*/lr=1,seed=2/slurm'"):
        get_launcher("slurm").check(run)


def test_a_step_is_started_in_it() -> None:
    own = SlurmSettings(slots_per_worker=2)
    pyxis = step_command(own, "toy-0-0", WORKER, contained("pyxis:/shared/metaworld.sqsh"))
    assert pyxis[: pyxis.index("sh")] == [
        *("srun", "--exact", "--unbuffered", "--job-name=sparring-toy-0-0", "--nodes=1", "--ntasks=1"),
        *("--cpus-per-task=2", "--mem=0", "--container-image=/shared/metaworld.sqsh"),
        *("--container-mounts=/shared/run/slurm:/mnt:ro", "--no-container-mount-home"),
    ]
    assert shlex.join(pyxis).endswith(INSIDE.format(variables=""))
    charliecloud = shlex.join(step_command(own, "toy-0-0", WORKER, contained("charliecloud:/shared/image")))
    assert "ch-run --bind=/shared/run/slurm:/mnt /shared/image -- env -u PYTHONPATH" in charliecloud


def test_the_script_of_a_run_names_files_as_the_container_sees_them(tmp_path: Path) -> None:
    run = read_settings(
        {
            "benchmark": "toy",
            "task": "short",
            "policy": "zero",
            "launcher": "slurm",
            "container": f"apptainer:{tmp_path}/toy.sif",
            "container_python": "/opt/conda/bin/python",
            "output": str(tmp_path / "run"),
            "advertise": "login",
        }
    )
    script = get_launcher("slurm").preview(run, {"toy": 4})[-1]
    words = shlex.split(script)
    assert words[:4] == ["exec", "apptainer", "exec", "--cleanenv"]
    assert f"--bind={tmp_path}/run/slurm:/mnt:ro" in words
    assert "/opt/conda/bin/python" in words
    assert "--join-token-file=/mnt/EXECUTION.token" in words
    assert "--ca=/mnt/EXECUTION.pem" in words
    assert "--name=toy-" in words[-1]
    assert f"until [ -r {tmp_path}/run/slurm/EXECUTION.token ]" in "\n".join(
        get_launcher("slurm").preview(run, {"toy": 4})
    ), "the node looks for it where it is there"


def test_each_benchmark_may_have_its_own() -> None:
    found = containers_of("metaworld=apptainer:/m.sif,libero=charliecloud:/l", ["metaworld", "libero", "toy"])
    assert found == {
        "metaworld": WorkerContainer("apptainer", "/m.sif"),
        "libero": WorkerContainer("charliecloud", "/l"),
    }
    assert set(containers_of("pyxis:lab/all", ["a", "b"])) == {"a", "b"}
    assert containers_of("", ["a"]) == {}


def test_a_file_is_named_as_every_node_finds_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert WorkerContainer.parse("apptainer:metaworld.sif").image == str(tmp_path / "metaworld.sif")
    assert WorkerContainer.parse("pyxis:lab/metaworld").image == "lab/metaworld"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("podman:image", "KIND is one of apptainer, singularity, pyxis, charliecloud"),
        ("apptainer", "is not KIND:IMAGE"),
        ("other=apptainer:/x.sif", "names 'other', which is not part of this run"),
    ],
)
def test_what_is_no_container_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        containers_of(text, ["metaworld"])


def test_an_image_that_is_not_there_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no image"):
        WorkerContainer.parse(f"apptainer:{tmp_path}/none.sif").check()
    WorkerContainer.parse("apptainer:docker://lab/image").check()


def test_an_image_that_is_a_folder_gets_places_for_what_it_is_shown(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.mkdir()
    program = ContainedProgram(
        WorkerContainer.parse(f"charliecloud:{image}"), Path("/shared/run/slurm"), [Path("/data/libero")]
    )
    assert "--set-env" not in program.started(WORKER)
    (image / "ch").mkdir()
    (image / "ch" / "environment").touch()
    assert "--set-env" in program.started(WORKER), "the image's own variables"
    program.make_ready()
    assert (image / "mnt").is_dir()
    assert (image / "data" / "libero").is_dir()
