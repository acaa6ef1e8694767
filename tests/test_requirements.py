"""Tests that need what a machine does not have are skipped in one line, and fail where that is demanded."""

from __future__ import annotations

import pytest
import requirements
from support import ROOT

TESTS = """
import pytest

@pytest.mark.requires("unicorn")
@pytest.mark.parametrize("number", range(3))
def test_of_unicorns(number): raise AssertionError

@pytest.fixture(scope="session")
def stable(): raise AssertionError

@pytest.mark.requires("horse", "unicorn")
def test_of_both(stable): raise AssertionError

@pytest.mark.requires("horse")
def test_of_horses(): pass

def test_of_nothing(): pass
"""


@pytest.fixture
def zoo(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of tests, on a machine with horses and without unicorns."""
    monkeypatch.delenv(requirements.VARIABLE, raising=False)
    monkeypatch.setitem(requirements.REQUIREMENTS, "unicorn", lambda: "none lives\nhere")
    monkeypatch.setitem(requirements.REQUIREMENTS, "horse", lambda: "")
    pytester.makeconftest('pytest_plugins = ["requirements"]')
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nmarkers = ["requires(*names): what is needed"]')
    pytester.makepyfile(TESTS)
    return pytester


def test_what_is_missing_is_skipped_in_one_line_that_says_what_and_why(zoo: pytest.Pytester) -> None:
    result = zoo.runpytest_inprocess("-ra")
    result.assert_outcomes(passed=2, skipped=4)
    told = [line for line in result.outlines if line.startswith("SKIPPED")]
    assert len(told) == 1
    assert told[0].startswith("SKIPPED [4] ")
    assert told[0].endswith("needs unicorn: none lives here")


@pytest.mark.parametrize("demand", ["unicorn", " horse , unicorn ", "all"])
def test_what_is_demanded_fails_instead(zoo: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, demand: str) -> None:
    monkeypatch.setenv(requirements.VARIABLE, demand)
    result = zoo.runpytest_inprocess("-ra")
    result.assert_outcomes(passed=2, errors=4)
    result.stdout.fnmatch_lines(["*needs unicorn: none lives here (SPARRING_REQUIRE demands it)*"])


def test_what_is_demanded_and_there_changes_nothing(zoo: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(requirements.VARIABLE, "horse")
    zoo.runpytest_inprocess().assert_outcomes(passed=2, skipped=4)


def test_a_name_that_nobody_knows_is_an_error_before_any_test(
    zoo: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(requirements.VARIABLE, "horse,unicron")
    result = zoo.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*SPARRING_REQUIRE names unicron; there is *unicorn*"])


def test_a_test_that_requires_what_nobody_knows_is_an_error(zoo: pytest.Pytester) -> None:
    zoo.makepyfile(test_more='import pytest\n@pytest.mark.requires("griffin")\ndef test_it(): pass')
    result = zoo.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it requires 'griffin', which tests/requirements.py does not know*"])


@pytest.mark.parametrize(("given", "demanded"), [("tests/docker", False), ("tests", True), ("tests/lerobot", True)])
def test_folders_of_another_interpreter_matter_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config, given: str, demanded: bool
) -> None:
    """pytest looks into folders beside those that it is given, too."""
    monkeypatch.setenv(requirements.VARIABLE, "lerobot")
    monkeypatch.setitem(requirements.FOLDERS, "lerobot", lambda: "it is not here")
    monkeypatch.setattr(pytestconfig, "args", [str(ROOT / given)])
    if demanded:
        with pytest.raises(pytest.UsageError, match="it is not here"):
            requirements.pytest_ignore_collect(ROOT / "tests" / "lerobot", pytestconfig)
    else:
        assert requirements.pytest_ignore_collect(ROOT / "tests" / "lerobot", pytestconfig)


@pytest.fixture
def folders(zoo: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Tests of which some cannot even be imported here."""
    monkeypatch.setitem(requirements.FOLDERS, "horse", lambda: "they are outside")
    for name, test in {"horse": "import no_such_module", "dog": "def test_of_dogs(): pass"}.items():
        folder = zoo.mkdir("tests") if not (zoo.path / "tests").exists() else zoo.path / "tests"
        (folder / name).mkdir()
        (folder / name / f"test_{name}.py").write_text(test)
    return zoo


def test_a_folder_for_another_interpreter_is_left_out_in_one_line(folders: pytest.Pytester) -> None:
    result = folders.runpytest_inprocess("tests")
    result.assert_outcomes(passed=1)
    assert [line for line in result.outlines if "SKIPPED" in line] == ["SKIPPED tests/horse: they are outside"]


@pytest.mark.parametrize("given", ["tests/horse", "tests/horse/test_horse.py"])
def test_one_that_is_asked_for_by_name_is_skipped_in_one_line_and_not_imported(
    folders: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    folders.path.joinpath("tests", "horse", "test_foal.py").write_text("import no_such_module")
    result = folders.runpytest_inprocess("-ra", given, "tests/dog")
    result.assert_outcomes(passed=1, skipped=2 if given == "tests/horse" else 1)
    told = [line for line in result.outlines if line.startswith("SKIPPED")]
    assert len(told) == 1
    assert told[0].endswith("tests/horse: they are outside")
    monkeypatch.setenv(requirements.VARIABLE, "horse")
    demanded = folders.runpytest_inprocess(given)
    assert demanded.ret != pytest.ExitCode.OK
    demanded.stdout.fnmatch_lines(["*tests/horse: they are outside (SPARRING_REQUIRE demands it)*"])


def test_a_folder_that_is_demanded_and_asked_for_is_an_error(
    folders: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(requirements.VARIABLE, "horse")
    result = folders.runpytest_inprocess("tests")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*tests/horse: they are outside (SPARRING_REQUIRE demands it)*"])
    folders.runpytest_inprocess("tests", "--ignore", "tests/horse").assert_outcomes(passed=1)
    others = folders.runpytest_inprocess("tests/dog")
    others.assert_outcomes(passed=1)
    assert "SKIPPED" not in others.stdout.str(), "nobody asked for horses"
