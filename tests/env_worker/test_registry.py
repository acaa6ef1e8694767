"""What a benchmark says of itself reaches those who need it, also if it is somebody else's."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import Sparring

from sparring.env_worker import benchmarks
from sparring.env_worker.conditions import assigned_conditions
from sparring.env_worker.registry import (
    all_benchmarks,
    broken_benchmarks,
    distribution_of,
    experts_of,
    get_benchmark,
    installed_versions,
)
from sparring.env_worker.worker.registration import registration
from sparring.orchestrator.cli.main import cli
from sparring.orchestrator.launchers.docker.engine import image_of
from sparring.orchestrator.settings import parse_pairs
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import FLAGS
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.tracebacks import cause_of, traceback_of


def test_versions_of_a_third_party_s_benchmark_and_of_what_it_names_are_recorded() -> None:
    versions = installed_versions()
    assert versions["toy-benchmark"] == "1.0", "the distribution that brings it"
    assert versions["psutil"] == version("psutil"), "what it names itself"
    assert "no-such-distribution" not in versions
    assert {"python", "sparring", "numpy", "grpcio", "protobuf", "metaworld", "mujoco", "gymnasium"} <= versions.keys()


def test_who_brings_a_benchmark() -> None:
    assert distribution_of("toy") == "toy-benchmark"
    assert distribution_of("metaworld") == "sparring"


def test_experts() -> None:
    found = experts_of(["toy", "gym"])
    assert found == {"toy": "toy_policies:Forward", "gym": ""}


def test_a_benchmark_s_assets_are_a_setting_of_it() -> None:
    for benchmark in all_benchmarks().values():
        if benchmark.assets is not None:
            assert getattr(benchmark.read_settings({benchmark.assets.setting: "/x"}), benchmark.assets.setting) == "/x"


def test_who_asks_for_one_imports_no_other() -> None:
    asked = (
        "import sys; from sparring.env_worker.registry import get_benchmark; get_benchmark('toy'); "
        "print([name for name in sys.modules if name.startswith('sparring.env_worker.benchmarks.')])"
    )
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_each_of_ours_is_in_a_file_of_its_name() -> None:
    """By which it is found without importing the others."""
    files = {path.stem for path in Path(benchmarks.__path__[0]).glob("[!_]*.py")}
    assert {
        name for name, found in all_benchmarks().items() if found.__module__.startswith(benchmarks.__name__)
    } == files
    assert all(get_benchmark(name).name == name for name in files)


def test_a_broken_plug_in_harms_nobody_who_does_not_ask_for_it() -> None:
    """The tests' own package has one beside the toy: whatever else is tested here works in spite of it."""
    assert "broken" not in all_benchmarks()
    assert set(broken_benchmarks()) == {"broken"}
    with pytest.raises(SparringError, match=r"'broken' \(no_such_module:Benchmark\) cannot be loaded: ModuleNotFound"):
        get_benchmark("broken")


def test_a_broken_plug_in_is_listed_as_such() -> None:
    listed = CliRunner().invoke(cli, ["ls", "benchmarks"])
    assert listed.exit_code == 0
    lines = {line.split()[0]: line for line in listed.output.splitlines()}
    assert "cannot be loaded" in lines["broken"]
    assert "metaworld" in lines


ODD = """
from toy_benchmark import Toy
from sparring import Benchmark

class NoSummary(Toy.__mro__[1]):
    name = "odd"
    tasks = groups = make = Toy.tasks

class NeedsPartOfWhatIsNotThere(Toy):
    requires = ("no_such_package.part",)

class NeedsNothingThatIsAName(Toy):
    requires = (7,)

class HasNoPackages(Toy):
    packages = None

class CannotTell(Toy):
    def missing(self):
        raise SystemExit("not asked")

class Launches:
    def __init__(self):
        raise SystemExit("not started")
"""


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that brings benchmarks which are wrong in other ways than that they cannot be imported."""
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.delitem(sys.modules, "odd_plugins", raising=False)
    described = tmp_path / "packages" / "odd-1.0.dist-info"
    described.mkdir(parents=True)
    (tmp_path / "packages" / "odd_plugins.py").write_text(ODD)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    names = ["NoSummary", "NeedsPartOfWhatIsNotThere", "NeedsNothingThatIsAName", "HasNoPackages", "CannotTell"]
    points = [f"odd-{number} = odd_plugins:{name}" for number, name in enumerate(names)]
    points += ["metaworld = odd_plugins:NoSummary", "gym = toy_benchmark:Toy"]
    (described / "entry_points.txt").write_text(
        "\n".join(["[sparring.benchmarks]", *points, "[sparring.launchers]", "process = odd_plugins:Launches"])
    )
    return tmp_path


def test_the_traceback_of_a_plug_in_begins_in_its_own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    described = tmp_path / "half-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: half\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[sparring.benchmarks]\nhalf = half_installed:Half\n")
    (tmp_path / "half_installed.py").write_text("import no_such_package\n")
    with pytest.raises(SparringError) as broken:
        get_benchmark("half")
    cause = cause_of(broken.value)
    assert cause is not None
    frames = [line for line in traceback_of(cause).splitlines() if line.startswith("  File")]
    assert frames == [f'  File "{tmp_path / "half_installed.py"}", line 1, in <module>']


def test_a_plug_in_that_is_odd_or_takes_a_name_of_ours_harms_nobody_either(usage: Sparring, odd: Path) -> None:
    assert set(broken_benchmarks()) == {"broken", "odd-0", "odd-2", "odd-3", "odd-4"}
    assert all_benchmarks()["odd-1"].missing() == ["no_such_package.part"]
    assert {type(all_benchmarks()[name]).__name__ for name in ("metaworld", "gym")} == {"Metaworld", "Gym"}
    listed = usage("ls", "benchmarks")
    assert listed.returncode == 0, listed.stderr
    assert "no_such_package.part" in listed.stdout
    for command in (("ls", "launchers"), ("ls", "tasks", "--benchmark", "toy"), ("ls", "policies")):
        assert usage(*command).returncode == 0
    flags = ("--benchmark", "toy", "--task", "short", "--policy", "toy_policies:Forward", "--episodes", "1")
    done = usage("run", *flags, "--in-process", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert usage("resume", "out").returncode == 0
    assert {"toy", "metaworld"} <= set(registration("w", slots=1, benchmark="", evaluation="").benchmarks)


OWN = """
from toy_benchmark import Toy

class Mine(Toy):
    name = "mine"
    packages = ("pytest",)

class Half(Toy.__mro__[1]):
    name = "half"

class Raises(Toy):
    def __init__(self):
        raise ValueError("not today")

something = 7
"""


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of one's own, where one is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("beside_me", "broken_beside_me"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "beside_me.py").write_text(OWN)
    (tmp_path / "broken_beside_me.py").write_text("1 / 0")
    return tmp_path


def test_a_class_beside_the_user_is_a_benchmark(beside: Path) -> None:
    benchmark = get_benchmark("beside_me:Mine")
    assert benchmark.name == "mine"
    assert [task.name for task in benchmark.tasks("good")] == ["short", "long"]
    assert "pytest" not in installed_versions()
    assert installed_versions(["toy", "beside_me:Mine"])["pytest"] == version("pytest")
    conditions = assigned_conditions(pb.Assignment(benchmark="beside_me:Mine"))
    assert conditions is not None
    assert conditions.versions["pytest"] == version("pytest"), "recordings have it, too"
    assert experts_of(["beside_me:Mine"]) == {"beside_me:Mine": "toy_policies:Forward"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere:Mine", r"no module 'nowhere' to take a benchmark from.*container.*in its image"),
        (":Mine", "no module ''"),
        ("beside_me.py:Mine", "the name of a file.* beside_me:Mine"),
        ("beside_me:Mien", "unknown benchmark in 'beside_me': 'Mien'. Did you mean 'Mine'"),
        ("beside_me:something", "unknown benchmark in 'beside_me': 'something'"),
        ("beside_me:Half", r"lacks summary and groups\(\) and make\(\) and tasks\(\)"),
        ("beside_me:Raises", "cannot be made: ValueError: not today"),
        ("broken_beside_me:Mine", "importing 'broken_beside_me' failed: ZeroDivisionError"),
        ("mine", "A class of your own: module:Class"),
    ],
)
def test_what_is_no_benchmark_is_refused_with_a_sentence(beside: Path, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        get_benchmark(name)


def test_a_class_of_one_s_own_needs_an_image_that_has_it(beside: Path) -> None:
    with pytest.raises(UsageError) as refused:
        image_of("beside_me:Mine")
    said = refused.value.told(FLAGS)
    assert "one that has the module 'beside_me' on its PYTHONPATH" in said
    assert "--image beside_me:Mine=me/mine:1.0" in said
    given = parse_pairs(["beside_me:Mine=me/mine:1.0"], "--image")
    assert given == {"beside_me:Mine": "me/mine:1.0"}
