"""How the code blocks of pages are found, and that what is wrong with one is seen."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from pages.blocks import BlockError, blocks_of
from pages.commands import check, commands_of, unknown_flags
from pages.running import Page, check_python

from sparring import SparringError


def written(folder: Path, text: str) -> Path:
    (folder / "page.md").write_text(text)
    return folder / "page.md"


def test_a_block_has_what_its_comments_say(tmp_path: Path) -> None:
    page = written(
        tmp_path,
        "# A\n\n<!-- run: with --episodes 1; requires docker; everything -->\n<!-- before: x=1 -->\n"
        "<!-- not here: make setup is what CI begins with -->\n```sh\nmake setup\nsparring ls\n```\n\n"
        "```python\n# mine.py\n1\n```\n\n<!-- checked: needs a GPU -->\n\n```sh\nmake setup\n```\n",
    )
    first, second, third = blocks_of(page)
    assert (first.flags, first.requires, first.everything, first.before) == ("--episodes 1", ("docker",), True, "x=1\n")
    assert (first.apart, first.not_here) == (True, "make setup is what CI begins with")
    assert (second.file, second.line, second.how, second.apart) == ("mine.py", 11, "run", False)
    assert (third.how, third.why) == ("checked", "needs a GPU")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\n\n    sparring ls\n", "write this block between ```"),
        ("```\nsparring ls\n```\n", "one of python, sh"),
        ("```bash\nsparring ls\n```\n", "not 'bash'"),
        ("```text\nsparring ls benchmarks\n```\n", "is a command"),
        ("<!-- not run: -->\n```sh\nx\n```\n", "say why"),
        ("<!-- run: whith --episodes 1 -->\n```sh\nx\n```\n", "not 'whith --episodes 1'"),
        ("<!-- checked: needs a GPU -->\n\nA sentence.\n\n```sh\nx\n```\n", "right above it"),
        ("```dockerfile\nFROM x\n```\n", "say why"),
    ],
)
def test_what_is_wrong_with_a_block_is_said(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BlockError, match=re.escape(said)):
        blocks_of(written(tmp_path, text))


def test_commands_go_on_and_have_comments() -> None:
    code = "# once\nA=1 sparring run \\\n    --task 'a # b'   # why\nB=2\n"
    first, second = commands_of(code)
    assert first.words == ("sparring", "run", "--task", "a # b")
    assert first.line == "A=1 sparring run --task 'a # b'"
    assert (second.line, second.words) == ("B=2", ())
    assert [c.words for c in commands_of("A=$(id -u) B='c d' docker ps\n(umask 077; ls)")] == [
        ("docker", "ps"),
        ("(umask", "077;", "ls)"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "sparring run --benchmark metaworld --task reach-v3 --policy expert --epsiodes 3",
        "sparring run --benchmark metaworld --policy expert",
        "sparring run --benchmark metaworld --task reach-v3 --policy expert --episodes 0",
        "sparring no-such-command",
        "make no-such-target",
        "pip install -e '.[no-such-extra]'",
        "docker compose -f no-such-file.yaml up",
        "docker run --rm sparring/orchestrator:0.1.0 run --no-such-flag",
        "python -m examples.no_such_module",
        "pytest tests/no_such_folder",
    ],
)
def test_a_command_that_would_be_refused_is_seen(line: str, tmp_path: Path) -> None:
    (command,) = commands_of(line)
    with pytest.raises((AssertionError, SparringError, click.ClickException)):
        check(command, tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "sparring run ... --listen 0.0.0.0:50052 --join-token-file token",
        "sparring run ... --policy-server gpu-box:50051",
        "sparring serve ... --token-file token",
        "make setup",
        "pip install -e '.[metaworld,lerobot]'",
        "docker run --rm sparring/orchestrator:0.1.0 run --benchmark metaworld --task mt50 --policy expert",
    ],
)
def test_a_command_that_would_be_taken_is_taken(line: str, tmp_path: Path) -> None:
    (command,) = commands_of(line)
    check(command, tmp_path)


def test_commands_in_sentences_have_names_that_there_are() -> None:
    assert unknown_flags("sparring run --config FILE --video none") == []
    assert unknown_flags("sparring run --no-such-flag=1") == ["--no-such-flag"]
    assert unknown_flags("sparring check policy-server HOST:PORT") == []
    assert unknown_flags("sparring check server HOST:PORT") == ["server"]
    assert unknown_flags("sparring lerobot-eval --policy.path=X") == []


@pytest.mark.parametrize(
    "code",
    [
        "from sparring import no_such_name",
        "from sparring import evaluate\nevaluate(p, benchmark='metaworld', taskss='x')",
        "from sparring import evaluate\nevaluate(benchmark='metaworld')",
        "from sparring import Results\nResults.open('x')",
        "from sparring import PolicySpec\nPolicySpec(observation=1)",
    ],
)
def test_python_that_would_fail_is_seen(code: str, tmp_path: Path) -> None:
    (block,) = blocks_of(written(tmp_path, f"<!-- checked: for this test -->\n```python\n{code}\n```\n"))
    with pytest.raises((AssertionError, ImportError)):
        check_python(block)


@pytest.mark.parametrize(
    "block",
    [
        "```sh\ntest -e nothing\n```",
        "```sh\nsparring show no-such-folder\n```",
        "```python\nassert False\n```",
        "```yaml\nbenchmark: metaworld\nno_such_setting: 1\n```",
        "```toml\n[a\n```",
        "```json\n{a}\n```",
    ],
)
def test_a_block_that_does_not_work_fails(block: str, tmp_path: Path) -> None:
    (found,) = blocks_of(written(tmp_path, f"{block}\n"))
    with pytest.raises((AssertionError, SparringError, ValueError)):
        Page(tmp_path).do(found)


def test_what_a_reader_does_lasts_to_the_end_of_the_page(tmp_path: Path) -> None:
    text = "```sh\nNAME=made\ntouch $NAME\n```\n\n```python\nx = 1\n```\n\n```python\nassert x == 1\n```\n"
    text += (
        "\n```python\n# made_by_a_page.py\ny = 2\n```\n\n```python\nfrom made_by_a_page import y\nassert y == 2\n```\n"
    )
    reader = Page(tmp_path)
    for block in blocks_of(written(tmp_path, text)):
        reader.do(block)
    assert (tmp_path / "made").exists()
