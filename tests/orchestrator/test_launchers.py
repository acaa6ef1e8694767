"""Launchers are found by name, ours and others'; nothing outside a launcher's own file knows its name."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from pydantic import Field, create_model
from support import ROOT, Sparring, read_csv, wait_for
from toy_launcher import NiceLauncher, NiceSettings
from toy_policies import Forward

from sparring.orchestrator.cli.main import cli
from sparring.orchestrator.execution.prepare import prepare
from sparring.orchestrator.launchers import registry
from sparring.orchestrator.launchers.base import Launcher, LauncherSettings, Leftover
from sparring.orchestrator.launchers.none import NoLauncher
from sparring.orchestrator.launchers.registry import all_launchers, get_launcher, working_launchers
from sparring.orchestrator.live.evaluator import Evaluator
from sparring.orchestrator.machine.finding import Finding
from sparring.orchestrator.settings import read_settings, saved_settings
from sparring.orchestrator.settings.run import own_fields
from sparring.protos.advice import FLAGS
from sparring.protos.errors import SparringError, UsageError

BASE: dict[str, Any] = {"benchmark": "toy", "task": "short", "policy": "zero"}
OURS = {"docker", "none", "process", "ray", "slurm"}


def test_ours_and_others_are_found_and_a_broken_one_takes_nobody_down() -> None:
    assert set(all_launchers()) == OURS | {"broken", "far", "greedy", "nice", "not-one"}
    assert set(working_launchers()) == OURS | {"far", "greedy", "nice"}
    assert all(launcher.name == name and launcher.summary for name, launcher in working_launchers().items())


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        (
            "broken",
            SparringError,
            "'broken' .no_such_module:Launcher. cannot be loaded: ModuleNotFoundError",
        ),
        ("not-one", SparringError, "'not-one' .* cannot be loaded: TypeError: it is not a sparring Launcher"),
        ("greedy", SparringError, "'greedy' has a setting 'seed', and so has every run"),
        ("nic", UsageError, "unknown launcher 'nic'. Did you mean 'nice'"),
    ],
)
def test_one_that_cannot_be_used_is_named_when_it_is_asked_for(name: str, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        read_settings({**BASE, "launcher": name})


def test_its_settings_are_flags_and_keys_like_all_others(tmp_path: Path) -> None:
    said = " ".join(CliRunner().invoke(cli, ["run", "--help"]).output.split())
    assert "--niceness INTEGER how much workers give way to others [default: 5]" in said
    assert "--niceness" in CliRunner().invoke(cli, ["resume", "--help"]).output
    (tmp_path / "run.yaml").write_text("launcher: nice\nniceness: 7\n")
    settings = read_settings(BASE, tmp_path / "run.yaml")
    assert settings.worker.own == NiceSettings(niceness=7)
    assert settings.flat()["niceness"] == 7
    assert "image" not in settings.flat(), "what is another launcher's is not saved"
    assert read_settings(settings.flat()) == settings


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"launcher": "nice", "niceness": 20}, "--niceness: .*less than or equal to 19, not 20"),
        ({"launcher": "process", "niceness": 3}, "--niceness goes with --launcher nice"),
        ({"launcher": "nice", "worker_memory": "1g"}, "--worker-memory goes with --launcher docker"),
        ({"launcher": "docker", "worker_memory": "lots"}, "--worker-memory: must be auto or an amount of at least 16m"),
        ({"launcher": "nice", "nicenes": 3}, "unknown setting 'nicenes'. Did you mean 'niceness'"),
    ],
)
def test_wrong_values_are_refused_with_a_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_settings({**BASE, **change})
    assert re.search(sentence, caught.value.told(FLAGS))


class Somewhere(NiceLauncher):
    """Also hosts policies, and has a setting for that."""

    class Hosting(LauncherSettings):
        serve_room: str = Field("attic", description="which room the policy is in")

    hosting_settings = Hosting


def test_settings_of_a_place_for_policies_are_its_launchers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Somewhere()
    place.name = "somewhere"
    known = {**all_launchers(), "somewhere": place}
    monkeypatch.setattr(registry, "all_launchers", lambda: known)
    run = read_settings({**BASE, "serve_on": "somewhere", "serve_room": "cellar", "launcher": "none"})
    assert run.policy.hosting == Somewhere.Hosting(serve_room="cellar")
    assert read_settings(run.flat()) == run
    assert read_settings({**BASE, "serve_on": "somewhere"}).flat()["serve_room"] == "attic"
    elsewhere = read_settings(saved_settings(run.flat(), {"serve_on": "here"}))
    assert "serve_room" not in elsewhere.flat()
    with pytest.raises(UsageError) as refused:
        read_settings({**BASE, "serve_room": "cellar"})
    assert refused.value.told(FLAGS) == "--serve-room goes with --serve-on somewhere."
    with pytest.raises(UsageError, match="takes no 'serve_room': the policy is served from this process"):
        Evaluator().evaluate(Forward(), benchmark="toy", tasks="short", serve_room="cellar")


@pytest.mark.parametrize(
    ("name", "sentence"), [("room", "begin with serve_"), ("serve_on", "'serve_on', and so has every run")]
)
def test_settings_of_a_place_for_policies_are_told_by_their_names(name: str, sentence: str) -> None:
    place = Somewhere()
    place.name = "nice"
    place.hosting_settings = create_model("Hosting", __base__=LauncherSettings, **{name: (str, "")})
    with pytest.raises(SparringError, match=sentence):
        own_fields(place)


def test_a_launcher_checks_the_machine_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="13 is unlucky here"):
        prepare(read_settings({**BASE, "launcher": "nice", "niceness": 13}))
    with pytest.raises(UsageError, match="image= names 'metaworld', which is not part of this run"):
        prepare(read_settings({**BASE, "launcher": "docker", "image": {"metaworld": "x"}}))


def test_settings_of_one_launcher_are_not_those_of_another_when_a_run_goes_on() -> None:
    saved = read_settings({**BASE, "launcher": "nice", "niceness": 7}).flat()
    assert read_settings(saved_settings(saved, {})).worker.own == NiceSettings(niceness=7)
    assert read_settings(saved_settings(saved, {"launcher": "process"})).worker.launcher == "process"
    gone = {**saved, "launcher": "uninstalled", "its_own": 3}
    assert read_settings(saved_settings(gone, {"launcher": "none"})).worker.launcher == "none"
    with pytest.raises(UsageError, match="unknown launcher 'uninstalled'"):
        read_settings(saved_settings(gone, {}))


def test_settings_of_a_hosted_server_that_release_0_1_0_saved_without_one_are_no_obstacle() -> None:
    saved = {**BASE, "policy": None, "policy_server": "a:1", "max_batch": 8, "launcher": "process"}
    assert read_settings(saved_settings(saved, {})).policy.policy_server == "a:1"
    with pytest.raises(UsageError, match="max_batch= goes with policy="):
        read_settings(saved)


def test_ls_tells_of_all_of_them() -> None:
    said = CliRunner().invoke(cli, ["ls", "launchers"]).output
    lines = {line.split()[0]: line for line in said.splitlines() if line.strip()}
    assert "worker processes that give way to others" in lines["nice"]
    assert "niceness" in lines["nice"]
    assert "cannot be loaded" in lines["broken"]
    assert "and so has every run" in lines["greedy"]


@pytest.mark.processes
def test_workers_of_somebody_elses_launcher_run_episodes(tmp_path: Path) -> None:
    plan: dict[str, Any] = {"benchmark": "toy", "tasks": "good", "episodes": 2, "slots": 2}
    from toy_policies import Wanderer

    with Evaluator() as ours:
        ours.evaluate(Wanderer(), **plan, output=tmp_path / "ours")
    # Workers that other tests of this process keep warm are children, too.
    others = set(psutil.Process().children())
    with Evaluator() as theirs:
        theirs.evaluate(Wanderer(), **plan, output=tmp_path / "theirs", launcher="nice", niceness=7)
        mine = set(psutil.Process().children()) - others
        workers = [p for p in mine if "sparring.env_worker" in " ".join(p.cmdline())]
        assert [worker.nice() - psutil.Process().nice() for worker in workers] == [7]
        workers[0].kill()
        wait_for(lambda: not workers[0].is_running())
        theirs.evaluate(Wanderer(), **plan, output=tmp_path / "again", launcher="nice", niceness=7)
    assert read_csv(tmp_path / "ours") == read_csv(tmp_path / "theirs") == read_csv(tmp_path / "again")
    assert (tmp_path / "theirs" / "logs" / "nice-toy.log").exists()


def test_clean_removes_what_every_launcher_left(monkeypatch: pytest.MonkeyPatch) -> None:
    left = {"a": 1, "b": 2}

    class Messy(NoLauncher):
        def leftovers(self, *, everything: bool = False) -> list[Leftover]:
            names = list(left) if everything else ["a"]
            return [Leftover(f"{name} of a killed run", lambda name=name: left.pop(name)) for name in names]

    class Unwell(NoLauncher):
        def leftovers(self, *, everything: bool = False) -> list[Leftover]:
            raise SparringError("nobody answers.")

    # What is on this machine is no business of a test; the launchers are real ones otherwise.
    launchers: dict[str, Launcher[Any]] = {"unwell": Unwell(), "messy": Messy()}
    monkeypatch.setattr("sparring.orchestrator.cli.commands.clean.working_launchers", lambda: launchers)
    said = CliRunner().invoke(cli, ["clean", "--dry-run", "--all"])
    assert said.output.splitlines() == ["would remove a of a killed run", "would remove b of a killed run"]
    assert set(left) == {"a", "b"}
    said = CliRunner().invoke(cli, ["clean"])
    assert said.output.splitlines() == ["removed a of a killed run"]
    assert set(left) == {"b"}
    assert "unwell: nobody answers." in str(said.exception), "one that fails is told, after all the others"
    assert said.exit_code == 1
    del launchers["unwell"]
    left.clear()
    monkeypatch.setattr(Messy, "leftovers", lambda self, everything=False: [])
    assert CliRunner().invoke(cli, ["clean"]).output == "There is nothing to remove.\n"


def test_no_launcher_waits_until_it_is_called_off() -> None:
    async def wait() -> None:
        task = asyncio.ensure_future(get_launcher("none").run(None))  # type: ignore[arg-type]  # it does not look
        done, _ = await asyncio.wait({task}, timeout=0.05)
        assert not done
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(wait())


def comparisons(tree: ast.AST) -> Iterator[str]:
    """Every text that something is compared with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                yield from (n.value for n in ast.walk(side) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def test_nobody_compares_a_launchers_name() -> None:
    assert list(comparisons(ast.parse("x if launcher != 'docker' else y in ('none', 'a')"))) == ["docker", "none", "a"]
    launchers = ROOT / "orchestrator" / "launchers"
    for room in ("protos", "policy_server", "env_worker", "orchestrator"):
        for path in (ROOT / room).rglob("*.py"):
            if path == launchers / "process.py" or path.is_relative_to(launchers / "docker"):
                continue
            found = set(comparisons(ast.parse(path.read_text()))) & {"docker", "process", "nice"}
            assert not found, f"{path} compares something with {found}"


@pytest.mark.processes
def test_a_launcher_whose_examine_raises_is_a_line_of_doctor_and_not_its_end(
    usage: Sparring, monkeypatch: pytest.MonkeyPatch
) -> None:
    def examine(self: NiceLauncher) -> list[Finding]:
        raise KeyError("gpu")

    monkeypatch.setattr(NiceLauncher, "examine", examine)
    done = usage("doctor")
    assert "Traceback" not in done.stderr
    assert "its examine() raised KeyError: 'gpu'" in " ".join(done.stdout.split())
