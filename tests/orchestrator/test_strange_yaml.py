"""YAML of anybody's: settings, protocols, values of flags. Read soon, or refused with a sentence, whatever it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from sparring.orchestrator.cli import lerobot_flags
from sparring.orchestrator.settings import config_file, parse_pairs, yaml_text
from sparring.orchestrator.settings.config_file import ConfigFile
from sparring.orchestrator.settings.yaml_text import read_yaml
from sparring.protos.errors import UsageError

STRANGE = {
    "a number of base 60, which takes the square of its length": "1" + ":1" * 100_000,
    "a fraction of base 60 that no number holds": "1" + ":1" * 190 + ".5",
    "a whole number of nothing": '!!int ""',
    "a fraction of nothing": '!!float ""',
    "a truth that is none": '!!bool "x"',
    "a date that is none": '!!timestamp "x"',
    "a date that cannot be": "2001-99-99",
    "a number that is too long": "1" * 5001,
    "a class": "!!python/object/apply:os.getcwd []",
}
READERS: dict[str, Callable[[Path, str], object]] = {
    "--config": lambda path, text: ConfigFile.read(path),
    "--benchmark-arg": lambda path, text: parse_pairs([f"x={text}"], "--benchmark-arg"),
    "--seed of lerobot-eval": lambda path, text: lerobot_flags._read([f"--seed={text}"]),
    "--config_path of lerobot-eval": lambda path, text: lerobot_flags._read_file(path),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", STRANGE)
def test_whatever_it_says_there_is_a_sentence(reader: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"seed: {STRANGE[what]}\n")
    with pytest.raises(UsageError, match=r"cannot be read|is not valid YAML|neither YAML nor JSON") as caught:
        READERS[reader](tmp_path / "a.yaml", STRANGE[what])
    assert len(str(caught.value)) < 2000


def test_flags_are_not_nested_too_deep() -> None:
    deep = "[" * 1000 + "]" * 1000
    with pytest.raises(UsageError, match="cannot be read"):
        parse_pairs([f"x={deep}"], "--x")
    with pytest.raises(UsageError, match="cannot be read"):
        lerobot_flags._read([f"--seed={deep}"])


def test_how_long_a_number_is() -> None:
    most = yaml_text._LONGEST_NUMBER
    assert read_yaml("1" * most) == int("1" * most)
    assert read_yaml("1:30:00") == 5400, "as YAML has it"
    with pytest.raises(yaml.YAMLError, match="too long for a number"):
        read_yaml("1" * (most + 1))
    assert read_yaml(f"'{'1' * (most + 1)}'") == "1" * (most + 1), "text is no number"


def nested(levels: int) -> str:
    return "x: " + "[" * levels + "1" + "]" * levels + "\n"


def test_how_deep_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(nested(config_file._DEEPEST - 1))  # below the name
    assert ConfigFile.read(tmp_path / "a.yaml").values["x"]
    (tmp_path / "a.yaml").write_text(nested(config_file._DEEPEST + 1))
    with pytest.raises(UsageError, match="nested too deep"):
        ConfigFile.read(tmp_path / "a.yaml")


def test_how_many_entries_a_file_has(tmp_path: Path) -> None:
    most = config_file._MOST_ENTRIES

    def written(entries: int) -> Path:  # each of two lists stands for 100 entries, one of them again and again
        again = ["*one"] * ((entries - 102) // 101)
        rest = ["1"] * ((entries - 102) % 101)
        (tmp_path / "a.yaml").write_text(f"x: [&one [{', '.join(['1'] * 100)}], {', '.join(again + rest)}]\n")
        return tmp_path / "a.yaml"

    assert ConfigFile.read(written(most)).values["x"]
    with pytest.raises(UsageError, match="holds too much: at most 50 levels and 20000 entries"):
        ConfigFile.read(written(most + 1))
