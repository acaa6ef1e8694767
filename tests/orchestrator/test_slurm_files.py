"""What jobs see of a run is in folders that are its user's own, wherever these are."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from sparring.orchestrator.cli.main import cli
from sparring.orchestrator.launchers.registry import get_launcher
from sparring.orchestrator.launchers.slurm import commands
from sparring.orchestrator.launchers.slurm.end_jobs import cancel_earlier
from sparring.orchestrator.launchers.slurm.job import Leftovers
from sparring.orchestrator.launchers.slurm.script import comment
from sparring.orchestrator.launchers.slurm.shared_files import SharedFiles
from sparring.orchestrator.machine.owner import owner
from sparring.protos.errors import SparringError

LOST_NODE = "lost-node/boot/1/2"
HOST, BOOT, _, STARTED = owner().split("/")
OWNERS = {"alive": owner(), "dead": f"{HOST}/{BOOT}/{2**22 + 1}/{STARTED}", "elsewhere": LOST_NODE}
SHARED = 1001
"""Of a group that is not this user's alone."""


def files(scratch: Path) -> SharedFiles:
    return SharedFiles.of(scratch, Path("outputs/first"), "abc")


def test_files_are_for_their_user_and_go_with_the_run(tmp_path: Path) -> None:
    for _ in range(2):  # the second time the folder of the logs is there
        with files(tmp_path).written("secret", b"certificate"):
            secrets = tmp_path / "first" / "slurm"
            assert secrets.stat().st_mode & 0o777 == 0o700
            assert (secrets / "abc.token").stat().st_mode & 0o777 == 0o600
        assert [each.name for each in (tmp_path / "first").iterdir()] == ["logs"]


def test_what_a_killed_execution_has_left_goes_and_nobody_elses(tmp_path: Path) -> None:
    def execution(name: str) -> SharedFiles:
        return SharedFiles.of(tmp_path, Path("outputs/first"), name)

    secrets = tmp_path / "first" / "slurm"
    with execution("lives").written("secret", b"certificate"):
        with execution("killed").written("secret", b"certificate"):
            left = {path.name: path.read_bytes() for path in secrets.glob("killed.*")}
        assert set(left) == {"killed.token", "killed.pem", "killed.owner"}
        host, boot, _, started = owner().split("/")
        left["killed.owner"] = f"{host}/{boot}/{2**22 + 1}/{started}".encode()  # there is no process of that number
        for name, content in left.items():
            (secrets / name).write_bytes(content)
        (secrets / "elsewhere.token").touch()
        (secrets / "elsewhere.owner").write_text("another-host/boot/1/2")
        with execution("next").written("secret", b"certificate"):
            found = {path.stem for path in secrets.glob("*.token")}
            assert found == {"lives", "next", "elsewhere"}
            assert not list(secrets.glob("killed.*"))
    assert {path.stem for path in secrets.iterdir()} == {"elsewhere"}


def test_in_the_runs_own_folder_whoever_was_there_before_has_ended_on_whatever_machine(tmp_path: Path) -> None:
    """As where a submitted run has lost its node, and Slurm starts it again on another: the run's lock is taken."""
    secrets = tmp_path / "first" / "slurm"
    with SharedFiles.of(None, tmp_path / "first", "lost").written("secret", b"certificate"):
        left = {path.name: path.read_bytes() for path in secrets.glob("lost.*")}
    secrets.mkdir(mode=0o700)
    for name, content in {**left, "lost.owner": LOST_NODE.encode(), "lost-alive": b""}.items():
        (secrets / name).write_bytes(content)
    with SharedFiles.of(None, tmp_path / "first", "next").written("secret", b"certificate") as ended:
        assert ended == {LOST_NODE}
        assert {path.stem for path in secrets.iterdir()} == {"next"}
        with SharedFiles.of(None, tmp_path / "first", "policy").written("secret", b"") as ended:
            assert ended == set(), "this run's own others go on"
            assert (secrets / "next.token").exists()


@pytest.mark.parametrize(("owner", "ended", "cancelled"), [
    ("dead", (), True), ("alive", (), False), ("elsewhere", (), False), ("elsewhere", ("elsewhere",), True),
])  # fmt: skip
def test_jobs_of_earlier_executions_are_cancelled_where_these_have_ended(
    owner: str, ended: tuple[str, ...], cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [
        Leftovers("7", "PENDING", "sparring-toy-first-abc", comment(OWNERS[owner], Path("/shared/first"))),
        Leftovers("8", "PENDING", "sparring-toy-first-abc", comment(OWNERS[owner], Path("/other/first"))),
        Leftovers("9", "PENDING", "training", ""),
    ]
    told: list[str] = []
    monkeypatch.setattr(commands, "own_jobs", lambda: jobs)
    monkeypatch.setattr(commands, "cancel", told.extend)
    asyncio.run(cancel_earlier(Path("/shared/first"), [OWNERS[name] for name in ended]))
    assert told == (["7"] if cancelled else [])


def test_clean_names_jobs_of_which_only_another_machine_knows_whether_their_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    jobs = [Leftovers(name, "RUNNING", "sparring", comment(whose, tmp_path)) for name, whose in OWNERS.items()]
    monkeypatch.setattr(commands, "is_installed", lambda name: True)
    monkeypatch.setattr(commands, "own_jobs", lambda: [*jobs, Leftovers("9", "PENDING", "training", "")])
    found = {leftover.what.split()[1]: leftover.kept for leftover in get_launcher("slurm").leftovers()}
    assert found == {
        "dead": "",
        "elsewhere": "it was submitted on 'lost-node'; whether that run goes on is known there only: clean there.",
    }
    assert [leftover.kept for leftover in get_launcher("slurm").leftovers(everything=True)] == ["", "", ""]


def test_a_folder_that_lets_others_in_is_refused(tmp_path: Path) -> None:
    secrets = tmp_path / "first" / "slurm"
    secrets.mkdir(parents=True)
    secrets.chmod(0o777)
    with (
        pytest.raises(SparringError, match=r"lets other users in, by its mode 0777: .* Remove it"),
        files(tmp_path).written("secret", b""),
    ):
        raise AssertionError
    assert list(secrets.iterdir()) == []


@pytest.mark.parametrize(("place", "mode"), [("team", 0o770), ("team", 0o2775), ("team/first", 0o770), ("team", 0o777)])
def test_folders_that_others_can_exchange_are_no_place_for_secrets(tmp_path: Path, place: str, mode: int) -> None:
    """Who may write above a folder can rename it, whatever its own mode is."""
    team = tmp_path / "team"
    (team / "first").mkdir(parents=True)
    (tmp_path / place).chmod(mode)
    others = SHARED if os.getuid() == 0 else max(set(os.getgroups()) - {os.getgid()}, default=None)
    if others is None:
        pytest.skip("this user is in no group that has other members")
    os.chown(tmp_path / place, -1, others)
    (tmp_path / place).chmod(mode)  # another group may have taken some of it
    whose = "every user" if mode & 0o002 else "the group"
    with (
        pytest.raises(SparringError, match=f"{whose} .*can put another folder .* chmod go-w"),
        files(team).written("secret", b""),
    ):
        raise AssertionError
    assert not list(tmp_path.glob("**/*.token"))
    (tmp_path / place).chmod(mode & ~0o022)
    with files(team).written("secret", b""):
        assert (team / "first" / "slurm" / "abc.token").exists()
    (tmp_path / place).chmod(mode | 0o1000)
    with files(team).written("secret", b""):
        assert (team / "first" / "slurm" / "abc.token").exists(), "where each renames their own only"


def test_the_group_of_one_user_is_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a umask of 002 all folders are their group's, which has the user's own name and nobody else in it."""
    mine, members = pwd.getpwuid(os.getuid()), ["somebody", "else"]
    found = SimpleNamespace(gr_gid=mine.pw_gid, gr_name=mine.pw_name, gr_mem=members)
    monkeypatch.setattr("grp.getgrgid", lambda number: found)
    monkeypatch.setattr("pwd.getpwuid", lambda number: mine)
    tmp_path.chmod(0o770)
    with pytest.raises(SparringError, match="the group"), files(tmp_path).written("secret", b""):
        raise AssertionError
    members.clear()
    with files(tmp_path).written("secret", b""):
        assert (tmp_path / "first" / "slurm" / "abc.token").exists()


@pytest.mark.parametrize("name", ["slurm", "logs"])
def test_a_link_to_somewhere_else_is_refused(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / name).symlink_to(elsewhere)
    with pytest.raises(SparringError, match="is a link and no folder"), files(tmp_path).written("secret", b""):
        raise AssertionError
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", [".", "slurm", "logs"])
def test_a_folder_of_another_user_is_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = tmp_path / "first" / name
    taken.mkdir(parents=True, mode=0o700)
    if os.getuid() == 0:
        os.chown(taken, 1001, 1001)
    else:  # nobody else's folder can be made, so that we are somebody else
        monkeypatch.setattr(os, "getuid", lambda: 1001)
    with (
        pytest.raises(SparringError, match="belongs to another user, number "),
        files(tmp_path).written("secret", b""),
    ):
        raise AssertionError
    assert not list(tmp_path.glob("**/*.token"))


def test_clean_removes_the_secrets_of_killed_runs_and_names_those_of_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(commands, "is_installed", lambda name: False)  # it is about files
    notes, launcher = tmp_path / "state" / "sparring" / "slurm", get_launcher("slurm")
    host, boot, _, started = owner().split("/")
    kept = {"dead": f"{host}/{boot}/{2**22 + 1}/{started}", "far": "another-host/boot/1/2"}
    with files(tmp_path).written("secret", b"certificate"):
        assert list(launcher.leftovers()) == [], "its run goes on"
        for name, whose in kept.items():
            secrets = tmp_path / name / "slurm"
            secrets.mkdir(parents=True)
            for file in (f"{name}.token", f"{name}.pem", f"{name}.owner", f"{name}-alive"):
                (secrets / file).write_text("secret")
            note = {"owner": whose, "token": str(secrets / f"{name}.token")}
            (notes / f"{name}.json").write_text(json.dumps(note))
        found = {leftover.what: leftover for leftover in launcher.leftovers()}
        dead, far = (found[f"the secret of a run, '{tmp_path}/{name}/slurm/{name}.token'"] for name in kept)
        assert "written on 'another-host'" in far.kept
        assert "clean there" in far.kept
        assert not dead.kept
        dead.remove()
        assert not (tmp_path / "dead" / "slurm").exists()
        assert [leftover.what for leftover in launcher.leftovers()] == [far.what]
        assert len(list(launcher.leftovers(everything=True))) == 2, "also that of the run that goes on"
    assert [path.name for path in notes.iterdir()] == ["far.json"], "a note goes with its secret"


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the secret of a killed run, which is noted."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(commands, "is_installed", lambda name: False)  # it is about files
    token = tmp_path / "scratch" / "run" / "slurm" / "abc.token"
    token.parent.mkdir(parents=True, mode=0o700)
    token.touch()
    _note(tmp_path, token)
    return token


def _note(tmp_path: Path, token: object) -> None:
    host, boot, _, started = owner().split("/")
    path = tmp_path / "state" / "sparring" / "slurm" / "abc.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"owner": f"{host}/{boot}/{2**22 + 1}/{started}", "token": str(token)}))


def _clean() -> None:
    for leftover in get_launcher("slurm").leftovers(everything=True):
        leftover.remove()


def test_clean_leaves_what_no_run_has_put_beside_its_secret(left: Path, tmp_path: Path) -> None:
    kept = [left.with_name(name) for name in ("abc.txt", "abcd.token", "abc-folder")]
    kept[0].touch()
    kept[1].touch()
    kept[2].mkdir()
    (left.with_name("abc-link")).symlink_to(tmp_path)
    left.with_name("abc-alive").touch()
    _clean()
    assert sorted(left.parent.iterdir()) == sorted([*kept, left.with_name("abc-link")])
    assert not list((tmp_path / "state").glob("**/*.json")), "the note is gone with the secret"


def test_clean_follows_no_link_that_somebody_has_put_in_the_place_of_a_secrets_folder(
    left: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    left.parent.rename(elsewhere)
    left.parent.symlink_to(elsewhere)
    _clean()
    assert (elsewhere / "abc.token").exists()


@pytest.mark.parametrize("whose", ["folder", "file"])
def test_clean_leaves_what_belongs_to_another_user(left: Path, whose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = left.with_suffix(".pem")
    pem.touch()
    if os.getuid() == 0:
        os.chown(left.parent if whose == "folder" else pem, 1001, 1001)
    elif whose == "folder":  # nobody else's can be made, so that we are somebody else
        monkeypatch.setattr(os, "getuid", lambda: 1001)
    else:
        pem.unlink()
        pem.symlink_to("/etc/passwd")
    _clean()
    assert pem.is_symlink() or pem.exists()
    assert left.exists() == (whose == "folder")


@pytest.mark.parametrize("named", ["", ".", "abc.token", "{left}/..", "{folder}/.token"])
def test_clean_takes_a_note_that_names_no_secret_for_nothing(
    left: Path, tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(left.parent)
    hidden = left.with_name(".bashrc")
    hidden.touch()
    left.with_name(".token").touch()
    _note(tmp_path, named.format(left=left.parent, folder=left.parent))
    _clean()
    assert hidden.exists()
    assert left.exists()


def test_secrets_are_removed_where_slurms_controller_is_gone(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's own words, from a squeue that says them; whether jobs are left nobody can know."""
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(commands, "is_installed", lambda name: True)
    only = {"slurm": get_launcher("slurm")}
    monkeypatch.setattr("sparring.orchestrator.cli.commands.clean.working_launchers", lambda: only)
    said = CliRunner().invoke(cli, ["clean"])
    assert said.output == f"removed the secret of a run, '{left}'\n"
    assert not left.exists()
    assert isinstance(said.exception, SparringError)
    assert said.exception.sentence == (
        "what killed runs may have left could not be looked for, or removed. slurm: jobs of killed runs, which may "
        "wait or run: slurm_load_jobs error: Unable to contact slurm controller. All else that was found was removed; "
        "clean again when that answers."
    )
