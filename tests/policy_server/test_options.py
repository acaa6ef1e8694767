"""A policy server's options are defined once: every way to give one is made from the same field."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparring.orchestrator.cli.commands import serve as serve_command
from sparring.orchestrator.cli.main import cli
from sparring.orchestrator.settings import read_settings, setting_fields
from sparring.orchestrator.settings.policy import HostedServerSettings
from sparring.policy_server.__main__ import _parser, options_of
from sparring.policy_server.options import Option, ServerOptions, server_options

OTHERS: dict[str, Any] = {
    "policy": "random",
    "policy_args": {"chunk": 3, "observations": ["a b", "ä"]},
    "experts": {"toy": "toy_policies:Forward"},
    "listen": ("127.0.0.1:0", "unix:///tmp/some where.sock"),
    "also": ("openpi:8000", "vla-eval:0.0.0.0:8001/libero"),
    "token_file": Path("a token"),
    "tls_cert": Path("cert.pem"),
    "tls_key": Path("key.pem"),
    "client_ca": Path("ca.pem"),
    "insecure": True,
    "max_batch": 3,
    "max_queue_delay": 0.5,
    "metrics": ":0",
    "max_observation": 9,
    "max_sessions": 7,
    "max_sessions_per_peer": 5,
    "idle_timeout": 33.0,
    "output": Path("a run"),
    "grace": 0.5,
}
"""A value for each that is not its default: one for whoever adds an option."""


def test_what_is_handed_over_arrives_whole() -> None:
    assert set(OTHERS) == {field.name for field in fields(ServerOptions)}
    whole = ServerOptions(**OTHERS)
    assert all(getattr(whole, option.name) != option.default for option in server_options())
    assert options_of(_parser().parse_args(whole.arguments())) == whole
    assert options_of(_parser().parse_args(ServerOptions().arguments())) == ServerOptions()


@pytest.mark.parametrize("option", server_options(), ids=lambda option: option.name)
def test_each_is_a_flag_of_the_program_and_of_serve(option: Option) -> None:
    program = " ".join(_parser().format_help().split())
    assert f"{option.flag} " in program
    assert option.help.split("; ")[0].replace("- ", "-") in program.replace("- ", "-")
    serve = CliRunner().invoke(cli, ["serve", "--help"], terminal_width=200).output
    flag = option.flag.removesuffix("s") if option.pairs else option.flag
    assert (f"{flag} " in serve) == (not option.by_program)


def test_those_of_a_run_are_settings_of_it() -> None:
    of_run = {option.name: option for option in server_options() if option.of_run}
    assert set(HostedServerSettings.model_fields) == set(of_run)
    said = setting_fields()
    for name, option in of_run.items():
        assert (said[name].default, said[name].description) == (option.default, option.help)
    given = {name: OTHERS[name] for name in of_run}
    settings = read_settings({"benchmark": "toy", "task": "short", "policy": "zero", **given})
    told = settings.policy.server_options(listen=("a:1",))
    assert told == ServerOptions(policy="zero", listen=("a:1",), **given)


def test_serve_hands_over_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[str] = []
    # Instead of becoming the server: that would be the end of this process.
    monkeypatch.setattr(serve_command, "become", lambda module, *arguments: became.extend(arguments))
    flags = []
    for option in server_options():
        value = OTHERS[option.name]
        if option.pairs:
            flags += ["--policy-arg", "chunk=3", "--policy-arg", 'observations=["a b", "ä"]']
        elif option.repeated:
            flags += [part for text in value for part in (option.flag, text)]
        elif option.is_switch:
            flags.append(option.flag)
        elif not option.by_program:
            flags += [option.flag, str(value)]
    done = CliRunner().invoke(cli, ["serve", *flags])
    assert done.exception is None, done.output
    assert options_of(_parser().parse_args(became)) == ServerOptions(**{**OTHERS, "experts": {}, "output": None})


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--max-batch=0", "--max-batch 0: must be a whole number, at least 1"),
        ("--max-batch=2.5", "at least 1"),
        ("--max-queue-delay=-1", "must be seconds, at least 0, or auto"),
        ("--grace=soon", "must be seconds, at least 0"),
        ("--metrics=9090", "'9090' is not HOST:PORT or :PORT"),
        ("--policy-arg=chunk", "is not KEY=VALUE"),
    ],
)
def test_wrong_values_are_refused_before_a_server_is_started(flag: str, said: str) -> None:
    done = CliRunner().invoke(cli, ["serve", "--policy=zero", flag])
    assert said in str(done.exception)
