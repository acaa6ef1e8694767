"""What the `sparring` command imports before it has anything to do: nothing that takes long."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest

from sparring.orchestrator.cli.main import _short_help, cli

HEAVY = {
    "numpy",
    "grpc",
    "torch",
    "mujoco",
    "gymnasium",
    "huggingface_hub",
    "pydantic",
    "rich",
    "yaml",
    "google.protobuf",
}
_TELL = """
import json, sys
sys.argv = ["sparring", *sys.argv[1:]]
from sparring.orchestrator.cli import main
try:
    main()
except SystemExit:
    pass
sys.stderr.write("MODULES" + json.dumps(sorted(sys.modules)))
"""


_INTERRUPTED = """
import sys

class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == "click":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
import sparring.orchestrator.cli
"""


def modules_of(*arguments: str) -> set[str]:
    """What is imported when a command has come to its end."""
    done = subprocess.run(
        [sys.executable, "-c", _TELL, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(done.stderr.partition("MODULES")[2]))


@pytest.mark.processes
@pytest.mark.parametrize("arguments", [("--help",), ("ls", "--help"), ("ls",), ("--version",)])
def test_help_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    modules = modules_of(*arguments)
    assert "click" in modules
    assert not HEAVY & modules
    assert len([name for name in modules if name.startswith("sparring.")]) < 20


@pytest.mark.processes
def test_the_help_of_run_imports_no_more_than_its_settings() -> None:
    modules = modules_of("run", "--help")
    assert "sparring.orchestrator.settings" in modules
    assert not {"torch", "mujoco", "gymnasium", "huggingface_hub"} & modules
    assert "sparring.orchestrator.execution.execution" not in modules


def test_what_a_command_is_for_is_read_from_its_source_and_is_what_it_says() -> None:
    context = click.Context(cli)
    names = cli.list_commands(context)
    assert "run" in names
    for name in names:
        command = cli.get_command(context, name)
        assert command is not None
        assert _short_help(name) == command.short_help


@pytest.mark.processes
def test_whoever_interrupts_it_while_it_is_imported_sees_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
