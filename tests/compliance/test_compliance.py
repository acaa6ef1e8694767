"""The compliance suite: our own server passes it, and every rule of it is seen to fail with a server that breaks it."""

from __future__ import annotations

import broken_servers
import pytest
from broken_servers import served
from certificates import Certificates
from click.testing import CliRunner
from own_servers import own_server
from support import free_port

from sparring.orchestrator.cli.main import cli
from sparring.policy_server.compliance import RULES, Rule, reached
from sparring.policy_server.compliance.wire import Target, Way
from sparring.protos.rules import Verdict, judge


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_our_own_server_holds(rule: Rule, target: Target) -> None:
    verdict = judge(rule, target)
    assert verdict.kind == "ok", verdict


# Each flaw, the rule that it breaks, and what the suite says of it.
FAULTS = [
    ("Careless", "steps_go_up", "step 0 after 7 was to be answered with welcome, episode_started, chunk, and then"),
    ("Careless", "another_type_of_the_same_size_is_refused", "refused with INVALID_ARGUMENT"),
    ("Careless", "health_says_serving", "UNIMPLEMENTED"),
    ("Refuser", "a_hello_is_answered_with_a_welcome", "ended INTERNAL"),
    ("SameSession", "sessions_have_names_of_their_own", "session, session, session"),
    ("Greedy", "more_than_is_needed_is_not_asked_for", "does not need"),
    ("OneStepLate", "a_chunk_names_what_it_answers", "step 1 is answered with chunk of episode 1, step 0"),
    ("NotANumber", "a_chunk_is_whole_and_finite", "not finite"),
    ("SharedState", "sessions_do_not_mix", "different actions at step 0"),
    ("Fickle", "describe_says_what_is_hosted", "something else each time"),
    ("Fickle", "an_unknown_method_is_unimplemented", "it is answered"),
]
NAMED = {rule.__name__: rule for rule in RULES}


def verdict_on(server: str, rule: str) -> Verdict:
    with served(getattr(broken_servers, server)) as address, reached(Way(address, deadline=5.0)) as target:
        return judge(NAMED[rule], target)


@pytest.mark.parametrize("rule", NAMED)
def test_every_rule_is_seen_to_fail(rule: str) -> None:
    # Refuser first: gRPC's threads can be left hanging by one that reads bytes that are no message, as Careless does.
    servers = dict.fromkeys(["Refuser", "Careless", *(server for server, broken, _ in FAULTS if broken == rule)])
    assert any(verdict_on(server, rule).kind == "FAILED" for server in servers)


@pytest.mark.parametrize(("server", "rule", "says"), FAULTS)
def test_a_fault_is_found_and_told(server: str, rule: str, says: str) -> None:
    verdict = verdict_on(server, rule)
    assert verdict.kind == "FAILED"
    assert says in verdict.detail


@pytest.mark.parametrize(
    ("server", "rule"), [(s, r) for s, r, _ in FAULTS if s not in ("Careless", "Refuser", "Fickle")]
)
def test_it_is_the_flaw_that_is_found(server: str, rule: str) -> None:
    assert verdict_on("Careless", rule).kind == "ok", "which has all but this flaw"


def test_the_command_passes_a_server_that_holds(blind_server: str) -> None:
    done = CliRunner().invoke(cli, ["check", "policy-server", blind_server], standalone_mode=False)
    assert done.return_value == 0, done.output
    assert "ok       A chunk names the observation that it answers." in done.output
    assert "this policy looks at nothing." in done.output
    assert done.output.splitlines()[-1].endswith(" 0 failed.")


def test_a_slow_server_can_be_given_longer(blind_server: str) -> None:
    arguments = ["check", "policy-server", blind_server, "--seconds"]
    assert CliRunner().invoke(cli, [*arguments, "60"], standalone_mode=False).return_value == 0
    hurried = CliRunner().invoke(cli, [*arguments, "0.0001"], standalone_mode=False)
    assert hurried.return_value == 1, "nobody answers all of it that soon, if Describe"


def test_the_command_fails_with_one_that_does_not() -> None:
    with served(broken_servers.Refuser) as address:
        done = CliRunner().invoke(cli, ["check", "policy-server", address], standalone_mode=False)
    assert done.return_value == 1
    assert "FAILED   A hello is answered with a welcome" in done.output


def test_a_server_with_a_token_and_tls(certificates: Certificates) -> None:
    with own_server("blind", *certificates.serving(), certificates.guarding) as address:
        arguments = ["check", "policy-server", address, "--ca", str(certificates.ca)]
        done = CliRunner().invoke(cli, [*arguments, "--token-file", str(certificates.token)], standalone_mode=False)
        assert done.return_value == 0, done.output
        assert CliRunner().invoke(cli, arguments, standalone_mode=False).return_value == 1, "not without the token"


def test_what_cannot_be_reached_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    done = CliRunner().invoke(cli, ["check", "policy-server", "nowhere"], standalone_mode=False)
    assert done.return_value == 2
    assert "error: 'nowhere'" in capfd.readouterr().err
    arguments = ["check", "policy-server", f"127.0.0.1:{free_port()}", "--token-file", "no/such/file"]
    assert CliRunner().invoke(cli, arguments, standalone_mode=False).return_value == 2
    assert "no/such/file" in capfd.readouterr().err
