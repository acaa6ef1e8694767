"""What a benchmark says of itself reaches those who need it, also if it is somebody else's."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from click.testing import CliRunner

from sparring.env_worker.registry import (
    all_benchmarks,
    broken_benchmarks,
    distribution_of,
    experts_of,
    get_benchmark,
    installed_versions,
)
from sparring.orchestrator.cli.main import cli
from sparring.protos.errors import SparringError


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
