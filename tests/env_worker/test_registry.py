"""What a benchmark says of itself reaches those who need it, also if it is somebody else's."""

from __future__ import annotations

from importlib.metadata import version

from sparring.env_worker.registry import all_benchmarks, distribution_of, experts_of, installed_versions


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
