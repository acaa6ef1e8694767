"""Does what a reader of a page would do: writes its files, runs its commands and its code, from top to bottom."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pages.blocks import Block
from pages.commands import Command, check, commands_of
from support import free_port, orphans, wait_for

import sparring
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.cli.main import cli
from sparring.orchestrator.settings import read_settings, setting_fields
from sparring.orchestrator.settings.protocols import find_protocol

SECONDS: Final = 240
"""No command of a page may take longer."""

LIGHT: Final = ("describe", "doctor", "ls", "show", "token")
"""Subcommands that start nothing: run in this process, which has imported all of it."""

_LOCAL: Final = re.compile(r"(?<=127\.0\.0\.1:)\d+")


class Page:
    """A reader with an empty folder, who goes through a page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names: dict[str, Any] = {"__name__": "page"}
        self._variables: list[str] = []
        self._ports: dict[str, str] = {}

    def do(self, block: Block) -> None:
        """Does with a block what its language and its page say.

        Raises:
            AssertionError: If what the page says is not so.
        """
        if block.how == "not run":
            return
        self.write(block)
        with contextlib.chdir(self.folder), _importing(self.folder):
            match block.language:
                case "sh":
                    self._shell(block)
                case "python" if block.how == "run":
                    self._execute(block)
                case "python":
                    check_python(block)
                case "yaml":
                    self._settings(block)
                case "json":
                    json.loads(block.code)
                case "toml":
                    tomllib.loads(block.code)

    def write(self, block: Block) -> None:
        """Writes a block to its file, if it has one."""
        if block.file:
            (self.folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / block.file).write_text(block.code)

    def _settings(self, block: Block) -> None:
        content = yaml.safe_load(block.code)
        assert isinstance(content, dict), block.where
        (file := self.folder / ".settings.yaml").write_text(block.code)
        if "extends" in content:
            find_protocol(get_benchmark(content["benchmark"]), str(file))
        else:
            read_settings({}, file)

    def _execute(self, block: Block) -> None:
        for code, lines in ((block.before, 0), (block.code, block.line)):
            exec(compile("\n" * lines + code, str(block.page), "exec", dont_inherit=True), self._names)
        sparring.close()  # the workers that a block evaluated with

    def _shell(self, block: Block) -> None:
        commands = [*commands_of(block.before), *commands_of(block.code)]
        for command in commands:
            check(command, self.folder)
        if block.how == "checked":
            return
        if block.at_once:
            self._at_once(block, commands)
            return
        for command in commands:
            if command.is_run_here:
                self._run(command, block)

    def _run(self, command: Command, block: Block) -> None:
        if not command.words:
            self._variables.append(command.line)
        elif command.words[0] == "sparring" and command.words[1] in LIGHT and not re.search(r"[$|<>*&;]", command.line):
            _in_this_process(command, block)
        else:
            shell = subprocess.run(
                self._bash(command, block), capture_output=True, text=True, timeout=SECONDS, check=False, env=_env()
            )
            said = f"{block.where}: {command.line}\nexit code {shell.returncode}\n{shell.stdout}\n{shell.stderr}"
            assert shell.returncode == 0, said
            assert orphans(self.folder) == [], said

    def _bash(self, command: Command, block: Block) -> list[str]:
        line = _LOCAL.sub(lambda port: self._port(port[0]), command.line)
        if command.words[:2] == ("sparring", "run") or "sparring run" not in block.code:
            line += f" {block.flags}" if block.flags else ""
        if _simple(line):
            line = f"exec {line}"  # signals are for the command, not for the shell
        return ["bash", "-euo", "pipefail", "-c", "\n".join([*self._variables, line])]

    def _port(self, named: str) -> str:
        """Another one that is free: those of the pages may be taken on this machine."""
        return self._ports.setdefault(named, str(free_port()))

    def _at_once(self, block: Block, commands: list[Command]) -> None:
        """Starts all commands, each when the one before it listens; when the run has ended, the others are ended."""
        started: dict[str, subprocess.Popen[str]] = {}
        try:
            for command in commands:
                started[command.line] = process = subprocess.Popen(
                    self._bash(command, block), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_env()
                )
                if port := re.search(r"--listen 127\.0\.0\.1:(\d+)", command.line):
                    number = int(self._port(port[1]))
                    wait_for(lambda p=process, n=number: p.poll() is not None or _listens(n), seconds=60)
            (run,) = [process for line, process in started.items() if line.startswith("sparring run")]
            said, _ = run.communicate(timeout=SECONDS)
            assert run.returncode == 0, f"{block.where}\n{said}"
            for line, process in started.items():
                if process is not run:
                    process.send_signal(signal.SIGTERM)
                    said, _ = process.communicate(timeout=30)
                    assert process.returncode in (0, 130, -signal.SIGTERM), f"{block.where}: {line}\n{said}"
        finally:
            for process in started.values():
                if process.poll() is None:
                    process.kill()
                    process.communicate()


def _listens(port: int) -> bool:
    import psutil

    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in psutil.net_connections("tcp"))


def _simple(line: str) -> bool:
    return not re.search(r"[|<>&;(]", line) and not re.match(r"\w+=", line)


def _in_this_process(command: Command, block: Block) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = cli.main(list(command.words[1:]), standalone_mode=False)
    # The doctor's verdict is of the machine, not of the page.
    assert code in (None, 0) or command.words[1] == "doctor", f"{block.where}: {command.line}\n{out.getvalue()}"


def _env() -> Mapping[str, str]:
    return {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


@contextlib.contextmanager
def _importing(folder: Path) -> Iterator[None]:
    """Files that readers write are found beside them, and forgotten with the page."""
    known = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]


def check_python(block: Block) -> None:
    """Holds Python against what there is, without running it: imports are found, what is called takes such arguments.

    Raises:
        AssertionError: If something is not there, or takes other arguments.
    """
    tree = ast.parse(block.before + block.code)
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            exec(compile(ast.Module([node], []), block.where, "exec"), names)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        target = _resolve(call.func, names)
        spread = [a for a in call.args if isinstance(a, ast.Starred)] + [k for k in call.keywords if k.arg is None]
        if target is None or spread or any(isinstance(a, ast.Constant) and a.value is ... for a in call.args):
            continue
        try:
            inspect.signature(target).bind(*call.args, **{str(k.arg): k.value for k in call.keywords})
        except TypeError as error:
            raise AssertionError(f"{block.where}: {ast.unparse(call)}: {error}") from None
        except ValueError:
            continue  # made in C, and says nothing of its arguments
        if target is sparring.evaluate:  # all settings of a run, beside what its signature names
            known = {*setting_fields(), *inspect.signature(target).parameters}
            assert [k.arg for k in call.keywords if k.arg not in known] == [], block.where


def _resolve(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """What a name, or an attribute of what was imported, stands for; None if the block makes it itself."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := _resolve(node.value, names)) is not None:
        if not inspect.ismodule(owner) and not inspect.isclass(owner):
            return None
        found = getattr(owner, node.attr, None)
        assert found is not None, f"{ast.unparse(node)} is not there"
        return found
    return None
