"""Protocols as settings of runs: what their names stand for, what is kept of them, and what is not mixed."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rich.console import Console, RenderableType
from rows import ROW
from support import Sparring, read_csv

from sparring.env_worker.protocol import OURS_NAME, differences, protocols_of, rules_of, whole
from sparring.env_worker.registry import all_benchmarks, get_benchmark
from sparring.orchestrator.comparison.comparable import obstacles
from sparring.orchestrator.comparison.differences import PairCounts
from sparring.orchestrator.comparison.protocols import side_by_side
from sparring.orchestrator.display.lines import result_lines
from sparring.orchestrator.display.protocols import protocols_table
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.results.document_parts import RunProtocol
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.run.protocols import protocols_played
from sparring.orchestrator.settings import read_settings
from sparring.policy_server.bridges.presets import PRESETS
from sparring.policy_server.client import LAYOUTS
from sparring.protos.errors import UsageError

RUN = {"benchmark": "toy", "task": "short", "policy": "toy_policies:Forward"}
ARGUMENTS = ("--benchmark", "toy", "--task", "short", "--policy", "toy_policies:Forward", "--in-process")
MINE = """
name: mine
version: 3
benchmark: toy
extends: narrow
settings: {reach: 0.2}
rules: {max_steps: 4}
"""

BOMB = "summary: [&a0 [x, x], " + ", ".join(f"&a{k + 1} [*a{k}, *a{k}]" for k in range(25)) + "]"
"""A line that stands for 2**26 entries."""
KNOWN = {
    ("libero", "ours", 1): "2f95418ced73",
    ("libero", "lerobot-0.6", 1): "0d17d3c53771",
    ("libero", "openpi", 1): "38be12a720fb",
    ("libero", "vla-eval", 1): "a1019703b27b",
    ("libero", "gr00t", 1): "1611daf2507d",
    ("metaworld", "ours", 1): "3d3278f09441",
    ("metaworld", "lerobot-0.6", 1): "3d3278f09441",
    ("metaworld", "metaworld-paper", 1): "3fb13eeebe51",
    ("pusht", "ours", 1): "8069562ab8e9",
    ("pusht", "lerobot-0.6", 1): "8069562ab8e9",
    ("aloha", "ours", 1): "fc88f24c708c",
    ("aloha", "lerobot-0.6", 1): "fc88f24c708c",
}
"""What each version of a protocol was when it came: one that is changed is another version."""


def test_no_protocol_changes_without_a_new_version() -> None:
    found = {
        (name, protocol.name, protocol.version): whole(get_benchmark(name), protocol).sha256[:12]
        for name in ("libero", "metaworld", "pusht", "aloha")
        for protocol in protocols_of(get_benchmark(name)).values()
    }
    assert found == KNOWN


def test_every_benchmark_has_ours_and_it_is_what_is_played_by_default() -> None:
    for name, benchmark in all_benchmarks().items():
        ours = whole(benchmark, protocols_of(benchmark)[OURS_NAME])
        assert repr(benchmark.read_settings(ours.settings)) == repr(benchmark.read_settings({})), name
        settings = read_settings({"benchmark": name, "task": "any", "policy": "zero"})
        assert (ours.seed, ours.rules) == (settings.plan.seed, settings.plan.rules.that_move()), name


@pytest.mark.parametrize("name", ["libero", "metaworld"])
def test_every_rule_of_ours_says_what_it_decides_and_which_way_it_moves_a_score(name: str) -> None:
    for place, rule in rules_of(get_benchmark(name)).items():
        assert rule.what != f"a setting of {name}", place
        assert rule.effect.told("a", "b") != "not known" or (rule.effect.more and rule.effect.less), place


IN_WORDS = {
    "as-given": "as given",
    "sign": "its sign: below 0 opens",
    "zero-one-inverted": "0 to 1 becomes 1 to -1, and then its sign: 1 opens",
}


@pytest.mark.parametrize("name", ["openpi", "vla-eval", "gr00t"])
def test_what_a_protocol_says_of_cameras_and_grippers_is_what_its_bridge_does(name: str) -> None:
    libero = get_benchmark("libero")
    found, layout = whole(libero, protocols_of(libero)[name]).conventions, PRESETS[name]["libero"]
    assert all(shown in found["cameras"] for shown in layout.images)
    assert ("scaled to 224" if layout.side == 224 else "as large as they are rendered") in found["images"]
    assert found["gripper"].startswith(IN_WORDS[layout.gripper])
    turned = [part.partition(":")[2] for parts in layout.states.values() for part in parts if "quat" in part]
    assert turned
    assert all(part.startswith("axis-angle") for part in turned)
    assert found["rotation"].startswith("axis-angle from 0 to 2 pi")
    prefixes = {shown.rpartition(".")[0] or shown for shown in layout.states}
    assert all(prefix in found["state"] for prefix in prefixes)


def test_conventions_are_rules_that_hashes_and_differences_tell() -> None:
    libero = get_benchmark("libero")
    ours, groot = (whole(libero, protocols_of(libero)[name]) for name in ("ours", "gr00t"))
    told = {one.rule.name: (one.first, one.second, one.effect) for one in differences(libero, ours, groot)}
    assert told["gripper"][0].startswith("as given")
    assert told["gripper"][1].endswith("1 opens")
    assert "0 %" in told["gripper"][2]
    assert {"cameras", "rotation", "state"} <= told.keys()
    assert "success" not in told
    other = replace(ours, conventions={**ours.conventions, "success": "checked at the end"})
    assert other.sha256 != ours.sha256
    kept = RunProtocol.of(groot, [])
    assert kept.conventions == groot.conventions
    assert RunProtocol.model_validate_json(kept.model_dump_json()) == kept


@pytest.mark.parametrize("name", ["libero", "metaworld", "pusht", "aloha"])
def test_every_protocol_says_when_success_is_checked_which_cameras_there_are_and_what_actions_are(name: str) -> None:
    benchmark = get_benchmark(name)
    for protocol in protocols_of(benchmark).values():
        assert {"success", "cameras", "actions", "state"} <= whole(benchmark, protocol).conventions.keys()


def test_other_conventions_are_other_rules_and_unknown_ones_are_none() -> None:
    libero = get_benchmark("libero")
    ours = whole(libero, protocols_of(libero)["ours"])
    other = replace(ours, conventions={**ours.conventions, "gripper": "turned round"})
    runs = [_by(RunProtocol.of(one, [])) for one in (ours, other, replace(ours, conventions={}))]
    refused = obstacles(runs[0], runs[1])
    assert any(re.search("libero, gripper: as given.* and turned round", sentence) for sentence in refused), refused
    assert obstacles(runs[0], runs[2]) == []


def _by(protocol: RunProtocol) -> Results:
    """A run that was played by it, of which nothing else is known."""
    return replace(_played(*PLAYED_BY_ALL[1], []), protocols={"libero": protocol})


def test_a_name_stands_for_seed_arguments_and_rules() -> None:
    settings = read_settings({**RUN, "protocol": "narrow", "benchmark_arg": {"noise": 0}})
    assert settings.plan.seed == 7
    assert settings.plan.benchmark_arg == {"noise": 0, "reach": 0.05}
    assert settings.plan.rules.actions_per_look == 2
    (part,) = settings.plan.parts
    assert part.protocol is not None
    assert part.protocol.name == "narrow"
    again = read_settings(settings.flat())
    assert again == settings


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"seed": 3}, r"the protocol 'narrow' has seed=7, and seed=3 says otherwise"),
        ({"max_steps": 9}, "has max_steps=0 \\(the benchmark's own limit\\), and max_steps=9 says otherwise"),
        ({"benchmark_arg": {"reach": 1.0}}, "has reach=0.05"),
        ({"protocol": "narow"}, "Did you mean 'narrow'"),
    ],
)
def test_what_says_otherwise_than_a_protocol_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        read_settings({**RUN, "protocol": "narrow", **given})


def test_what_says_the_same_is_taken() -> None:
    settings = read_settings({**RUN, "protocol": "narrow", "seed": 7, "benchmark_arg": {"reach": 0.05}})
    assert settings.plan.seed == 7


def test_a_file_of_ones_own_extends_another(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(MINE)
    settings = read_settings({**RUN, "protocol": str(file)})
    assert settings.plan.seed == 7
    assert settings.plan.benchmark_arg["reach"] == 0.2
    assert (settings.plan.rules.max_steps, settings.plan.rules.actions_per_look) == (4, 2)
    (part,) = settings.plan.parts
    assert part.protocol is not None
    assert part.protocol.whole().label == "mine@3"
    file.unlink()  # a folder of results is read again without it
    assert read_settings(settings.flat()) == settings


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("benchmark: toy", "benchmark: gym", "is for the benchmark 'gym', not for 'toy'"),
        ("name: mine", "name: ours", "needs a `name` of its own"),
        ("name: mine", "name: a b", "needs a `name` of its own"),
        ("extends: narrow", "extends: wide", "mine.yaml, line 5.*'wide'"),
        ("reach: 0.2", "reech: 0.2", "Did you mean 'reach'"),
        ("reach: 0.2", "reach: far", "must be float"),
        ("max_steps: 4", "max_steps: -4", "line 7: max_steps"),
        ("max_steps: 4", "observe: every-step", "unknown rule 'observe'"),
        ("version: 3", "version: 0", "line 3: `version` must be at least 1"),
        ("version: 3", "version: new", "line 3: `version` must be a whole number"),
        ("version: 3", "versoin: 3", "Did you mean 'version'"),
        ("extends: narrow", "extends: [narrow]", "line 5: `extends` must be text"),
        ("reach: 0.2", "1: 2", "line 6: names in `settings` must be text, not 1"),
        ("max_steps: 4", "1: 2", "line 7: names in `rules` must be text, not 1"),
        ("reach: 0.2", "step_seconds: 0.2", "line 6: 'step_seconds' is a setting of toy that moves no score"),
        ("version: 3", "layout: openpy", "layout in .*line 3.*Did you mean 'openpi'"),
        ("version: 3", "summary: 2001-99-99", "is not valid YAML"),
        ("version: 3", f"version: {'1' * 5001}", "is not valid YAML"),
        ("version: 3", f"summary: {'[' * 3000}{']' * 3000}", "nested too deep"),
        ("version: 3", "summary: &a [*a]", "nested too deep"),
        ("version: 3", f"summary: {'a' * 2**20}", "it has more than 1,048,576 bytes"),
        ("version: 3", BOMB, "holds too much"),
    ],
)
def test_a_file_that_is_wrong_is_told_with_its_line(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(MINE.replace(old, new))
    with pytest.raises(UsageError, match=sentence):
        read_settings({**RUN, "protocol": str(file)})


def test_layouts_are_those_that_bridges_know() -> None:
    assert set(LAYOUTS) >= {"lerobot", *PRESETS}
    for benchmark in all_benchmarks().values():
        assert {protocol.layout for protocol in benchmark.protocols} <= set(LAYOUTS)


@pytest.mark.parametrize("own", [None, 2**63 - 1])
def test_no_part_has_a_seed_that_cannot_be_recorded(own: int | None) -> None:
    entry = {"benchmark": "toy", "task": "short", "seed": own}
    values = {"policy": "zero", "episodes": 2, "evaluations": [entry]}
    if own is None:
        assert read_settings(values).plan.seed == 1000
        return
    with pytest.raises(UsageError, match="the seed of toy is too large"):
        read_settings(values)


def test_a_saved_protocol_is_what_its_hash_says() -> None:
    saved = read_settings({**RUN, "protocol": "narrow"}).flat()
    saved["protocol"]["settings"]["reach"] = 1.0
    with pytest.raises(UsageError, match="is not what its hash says"):
        read_settings(saved)


def test_a_rule_that_is_no_number_is_kept_with_the_run(usage: Sparring) -> None:
    """Gymnasium's `success_return` is NaN where it is not given, which JSON has no word for."""
    plan = ("--benchmark", "gym", "--task", "CartPole-v1", "--metric", "return", "--policy", "random", "--in-process")
    for folder, protocol in (("a", ("--protocol", "ours")), ("b", ("--config", "parts.yaml"))):
        part = "{benchmark: gym, task: CartPole-v1, protocol: ours}"
        Path("parts.yaml").write_text(f"evaluations: [{part}]\nmetric: return\npolicy: random\nin_process: true\n")
        given = protocol if folder == "b" else (*plan, *protocol)
        done = usage("run", *given, "--episodes", "1", "--output", folder)
        assert done.returncode == 0, done.stderr
        assert usage("run", *given, "--episodes", "2", "--output", folder).returncode == 0
        assert usage("resume", folder).returncode == 0
        done = usage("verify", folder, "--all", "--in-process")
        assert done.returncode == 0, done.stdout + done.stderr
        shutil.copytree(folder, f"copy-of-{folder}")
        found = json.loads(usage("diff", folder, f"copy-of-{folder}", "--json").stdout)
        assert (found["same"], found["around"]) == (2, {})


def test_several_protocols_are_parts_of_one_run() -> None:
    settings = read_settings({**RUN, "protocols": "narrow,ours", "episodes": 2})
    narrow, ours = settings.plan.parts
    assert (narrow.label, ours.label) == ("narrow", "ours")
    assert settings.plan.rules_of(narrow).actions_per_look == 2
    assert settings.plan.rules_of(ours).actions_per_look == 0
    plan = make_plan(settings)
    assert plan.seed_of(EpisodeId("narrow", "short", 1)) == 8
    assert plan.seed_of(EpisodeId("ours", "short", 1)) == 1001
    assert read_settings(settings.flat()) == settings


@pytest.mark.parametrize(
    "given",
    [{"protocols": "narrow,narrow"}, {"protocols": "narrow,ours", "protocol": "ours"}, {"protocols": "a,ours"}],
)
def test_protocols_that_cannot_stand_side_by_side(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        read_settings({**RUN, **given})


def test_an_evaluation_of_a_file_may_have_its_own() -> None:
    entries = [
        {"benchmark": "toy", "task": "short", "protocol": "narrow", "name": "a"},
        {"benchmark": "toy", "task": "short", "name": "b", "seed": 5, "rules": {"max_steps": 3}},
    ]
    settings = read_settings({"policy": "zero", "evaluations": entries})
    first, second = settings.plan.parts
    assert (first.seed, settings.plan.seed_of(second), settings.plan.rules_of(second).max_steps) == (7, 5, 3)
    entries[1]["rules"] = {"max_step": 3}
    with pytest.raises(UsageError, match="max_steps"):
        read_settings({"policy": "zero", "evaluations": entries})


def test_a_run_is_known_by_its_protocol(usage: Sparring, tmp_path: Path) -> None:
    done = usage("run", *ARGUMENTS, "--episodes", "2", "--protocol", "narrow", "--output", "a")
    assert done.returncode == 0, done.stderr
    assert [row["seed"] for row in read_csv(tmp_path / "a")] == ["7", "8"]
    kept = json.loads((tmp_path / "a" / "run.json").read_text())["protocols"]["toy"]
    assert kept["sha256"] == whole(get_benchmark("toy"), protocols_of(get_benchmark("toy"))["narrow"]).sha256
    assert (kept["name"], kept["version"], kept["changed"]) == ("narrow", 1, [])
    refused = usage("run", *ARGUMENTS, "--episodes", "3", "--protocol", "ours", "--output", "a", "--accept-changes")
    assert refused.returncode == 2
    assert "protocols toy" in refused.stderr
    more = usage("run", *ARGUMENTS, "--episodes", "3", "--protocol", "narrow", "--output", "a")
    assert more.returncode == 0, more.stderr


def test_ours_is_what_a_run_without_a_protocol_plays_by(usage: Sparring, tmp_path: Path) -> None:
    for folder, more in (("a", ()), ("b", ("--protocol", "ours")), ("c", ("--seed", "3")), ("d", ("--max-steps", "2"))):
        done = usage("run", *ARGUMENTS, "--episodes", "2", *more, "--output", folder)
        assert done.returncode == 0, done.stderr
    deciding = ("task", "index", "seed", "outcome", "steps", "reward_sum")
    first, second = ([[row[k] for k in deciding] for row in read_csv(tmp_path / folder)] for folder in "ab")
    assert first == second
    kept = {f: json.loads((tmp_path / f / "run.json").read_text())["protocols"]["toy"] for f in "abcd"}
    assert kept["a"] == kept["b"]
    assert kept["c"]["changed"] == ["seed"]
    assert kept["d"]["changed"] == ["max_steps"]
    assert usage("compare", "a", "b").returncode == 0
    assert usage("compare", "a", "c").returncode == 0, "another seed is no other rule"
    assert "toy, max_steps: 0 (the benchmark's own limit) and 2" in usage("compare", "a", "d").stderr


def test_runs_by_other_protocols_are_not_compared_unless_one_insists(usage: Sparring, tmp_path: Path) -> None:
    for folder, name in (("a", "ours"), ("b", "narrow")):
        assert usage("run", *ARGUMENTS, "--episodes", "2", "--protocol", name, "--output", folder).returncode == 0
    refused = usage("compare", "a", "b")
    assert refused.returncode == 2
    assert "toy was played by ours@1" in refused.stderr
    assert "toy, reach: 0.1 and 0.05" in refused.stderr
    insisted = usage("compare", "a", "b", "--force")
    assert insisted.returncode == 0
    assert "not comparable" in insisted.stdout


def test_rules_that_somebody_has_edited_are_found_out() -> None:
    """The hash alone says whether runs are alike."""
    played = whole(get_benchmark("toy"), protocols_of(get_benchmark("toy"))["narrow"])
    kept = json.loads(RunProtocol.of(played, []).model_dump_json())
    assert RunProtocol.model_validate(kept).sha256 == played.sha256
    name = next(iter(kept["rules"]))
    for edited in ({**kept, "rules": {**kept["rules"], name: 7}}, {**kept, "seed": 8}, {**kept, "layout": "gr00t"}):
        with pytest.raises(ValidationError, match="its hash is not that of its rules"):
            RunProtocol.model_validate(edited)


def test_several_protocols_come_to_one_table_in_pairs(usage: Sparring, tmp_path: Path) -> None:
    policy = ("--policy", "toy_policies:Wanderer", "--benchmark", "toy", "--task", "short,long", "--in-process")
    done = usage("run", *policy, "--episodes", "8", "--protocols", "ours,narrow", "--output", "a")
    assert done.returncode == 0, done.stderr
    assert "by protocols, in pairs of the same episode with ours" in done.stdout
    assert "reach: 0.1 -> 0.05; usually lower" in done.stdout
    found = json.loads(usage("show", "a", "--json").stdout)["by_protocols"]
    assert list(found) == ["ours", "narrow"]
    assert found["ours"]["against_the_first"] is None
    assert not found["narrow"]["begins_alike"], "its seed is another"
    against = found["narrow"]["against_the_first"]
    rows = read_csv(tmp_path / "a")
    won = {(r["benchmark"], r["task"], r["index"]): r["outcome"] == "success" for r in rows}
    pairs = [(won["ours", task, str(k)], won["narrow", task, str(k)]) for task in ("short", "long") for k in range(8)]
    assert against["overall"]["pairs"] == {
        "n": 16, "both": pairs.count((True, True)), "only_first": pairs.count((True, False)),
        "only_second": pairs.count((False, True)), "neither": pairs.count((False, False)),
    }  # fmt: skip
    assert {row["seed"] for row in rows if row["benchmark"] == "narrow"} == {str(7 + k) for k in range(8)}
    assert "by protocols" in usage("show", "a").stdout
    again = usage("run", *policy, "--episodes", "9", "--protocols", "ours,narrow", "--output", "a")
    assert again.returncode == 0, again.stderr
    refused = usage("run", *policy, "--episodes", "9", "--protocols", "narrow,ours", "--task", "short", "--output", "a")
    assert refused.returncode == 2


def test_protocols_with_other_initial_states_are_held_against_each_other(usage: Sparring, tmp_path: Path) -> None:
    run = ("run", "--benchmark", "metaworld", "--task", "reach-v3", "--policy", "expert", "--in-process")
    done = usage(*run, "--protocols", "lerobot-0.6,metaworld-paper", "--episodes", "1", "--output", "a")
    assert done.returncode == 0, done.stderr
    found = json.loads(usage("show", "a", "--json").stdout)["by_protocols"]["metaworld-paper"]
    assert found["against_the_first"]["overall"]["pairs"]["n"] == 1
    assert found["against_the_first"]["obstacles"] == ["reach-v3: 0 and 50 initial states."]


PLAYED_BY_ALL = [
    ("metaworld", "reach-v3,push-v3", "lerobot-0.6,metaworld-paper"),
    ("libero", "libero_goal/1,libero_goal/2", "lerobot-0.6,gr00t"),
]


def _played(benchmark: str, task: str, protocols: str, judged: Sequence[str]) -> Results:
    """A run by several protocols without its simulators: the second of them loses the first episode of each task."""
    settings = read_settings(
        {"policy": "zero", "benchmark": benchmark, "task": task, "protocols": protocols, "episodes": 4}
    )
    plan = make_plan(settings)
    last = list(plan.tasks)[-1]
    rows = [
        replace(
            ROW, benchmark=id.benchmark, task=id.task, index=id.index, seed=plan.seed_of(id), steps=9,
            outcome="error" if id.benchmark not in judged
            else "failure" if (id.benchmark, id.index) == (last, 0) else "success",
        )
        for id in plan.ids()
    ]  # fmt: skip
    return Results(plan, rows, 1.0, None, protocols=protocols_played(settings))


@pytest.mark.parametrize(("benchmark", "task", "protocols"), PLAYED_BY_ALL)
def test_protocols_with_other_initial_states_are_compared(benchmark: str, task: str, protocols: str) -> None:
    results = _played(benchmark, task, protocols, protocols.split(","))
    first, second = side_by_side(results)
    assert (first.against, first.begins_alike) == (None, True)
    assert second.against is not None
    assert second.against.overall.pairs == PairCounts(both=6, only_first=2, only_second=0, neither=0)
    assert not second.begins_alike
    assert "initial states" in second.against.obstacles[0]
    shown = _shown(protocols_table([first, second]))
    assert f"in pairs of the same episode with {first.label}" in shown
    assert "do not begin alike" in shown


def test_each_of_several_protocols_has_its_overall_and_all_together_have_none() -> None:
    results = _played(*PLAYED_BY_ALL[0], ["lerobot-0.6", "metaworld-paper"])
    shown = {line.name: line.cells for line in result_lines(results) if line.level == "overall"}
    assert list(shown) == ["overall by lerobot-0.6", "overall by metaworld-paper"]
    assert [cells[2] for cells in shown.values()] == ["100.0 %", "75.0 %"]
    overall = results.to_json()["overall"]
    assert {name: found["success_rate"] for name, found in overall.items()} == {
        "lerobot-0.6": 1.0,
        "metaworld-paper": 0.75,
    }
    second = side_by_side(results)[1].to_json()["against_the_first"]["overall"]
    assert (second["difference"], second["pairs"]["n"]) == (-0.25, 8)
    table = _shown(protocols_table(side_by_side(results)))
    assert re.search(r"^overall +100\.0 % +75\.0 %$", table, re.MULTILINE), table
    assert results.select("lerobot-0.6").to_json()["overall"]["success_rate"] == 1.0
    alone = [line.level for line in result_lines(results.select("lerobot-0.6"))]
    assert alone[-1] == "overall"


def test_what_has_no_outcome_yet_is_said_not_to_be_compared() -> None:
    benchmark, task, protocols = PLAYED_BY_ALL[0]
    first, second = side_by_side(_played(benchmark, task, protocols, ["lerobot-0.6"]))
    assert second.against is None
    shown = _shown(protocols_table([first, second]))
    assert "metaworld-paper is not held against lerobot-0.6" in shown
    assert "in pairs" not in shown


def _shown(what: RenderableType) -> str:
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(what)
    return console.export_text()


def test_what_was_cut_off_by_a_shorter_limit_is_counted(usage: Sparring, tmp_path: Path) -> None:
    (tmp_path / "brief.yaml").write_text("{name: brief, benchmark: toy, rules: {max_steps: 12}}")
    run = ("run", "--policy", "toy_policies:Forward", "--benchmark", "toy", "--task", "short", "--in-process")
    done = usage(*run, "--episodes", "10", "--protocols", "ours,brief.yaml", "--output", "a", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["by_protocols"]["brief"]
    lost = found["against_the_first"]["overall"]["pairs"]["only_first"]
    assert found["cut_off"] == lost > 0
    assert found["begins_alike"]
    played = [row for row in read_csv(tmp_path / "a") if row["benchmark"] == "ours"]
    assert lost == sum(row["outcome"] == "success" and int(row["steps"]) > 12 for row in played)


def test_evaluate_takes_a_protocol() -> None:
    from toy_policies import Forward

    from sparring import evaluate

    found = evaluate(Forward(), benchmark="toy", tasks="short", episodes=2, protocol="narrow", in_process=True)
    assert [row.seed for row in found.rows] == [7, 8]
    assert found.protocols["toy"].name == "narrow"


def test_protocols_are_shown_and_held_against_each_other(usage: Sparring, tmp_path: Path) -> None:
    assert "openpi" in usage("ls", "protocols").stdout
    assert "narrow" not in usage("ls", "protocols", "--benchmark", "libero").stdout
    shown = usage("protocol", "show", "openpi").stdout
    assert "limit_spatial" in shown
    assert "220" in shown
    found = json.loads(usage("protocol", "diff", "lerobot-0.6", "openpi", "--json").stdout)
    by_rule = {one["rule"]: one for one in found["differences"]}
    assert by_rule["limit_spatial"]["effect"].startswith("lower")
    back = json.loads(usage("protocol", "diff", "openpi", "lerobot-0.6", "--json").stdout)
    assert {one["rule"]: one for one in back["differences"]}["limit_spatial"]["effect"].startswith("higher")
    assert "are the same rules" in usage("protocol", "diff", "ours", "lerobot-0.6", "--benchmark", "metaworld").stdout
    (tmp_path / "mine.yaml").write_text(MINE + "summary: narrow, and in a hurry")
    assert "narrow, and in a hurry" in usage("protocol", "show", "mine.yaml").stdout
    written = usage("protocol", "show", "narrow", "--yaml").stdout
    (tmp_path / "my.yaml").write_text(written)
    assert "my-narrow@1" in usage("protocol", "show", "my.yaml").stdout
    assert usage("protocol", "diff", "openpi", "metaworld-paper").returncode == 2
    assert "Did you mean 'openpi'" in usage("protocol", "show", "openpj").stderr
