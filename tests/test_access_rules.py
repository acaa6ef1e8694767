"""Every rule of access has a test of who is refused and one of who is let in: a new rule cannot come without."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
ROOMS: Final = ("protos", "policy_server", "env_worker", "orchestrator")

DECIDE: Final = frozenset(
    [
        *("check_reach", "brought", "compare_digest", "came_by_socket", "ssl_server_credentials", "is_launched"),
        *("is_known_host", "is_let_in", "log_in", "_is_of_another_page", "_is_exposed", "_check_own", "_own_folder"),
    ]
)
"""Functions that decide who is let in: whoever calls one holds a rule."""
STATUSES: Final = frozenset(["UNAUTHENTICATED", "UNAUTHORIZED", "PERMISSION_DENIED", "FORBIDDEN"])
NO_RULES: Final = frozenset(
    [
        "policy_server/errors.py:translated",
        "env_worker/worker/worker.py:",
        "env_worker/worker/worker.py:Worker._refusal",
        "env_worker/worker/worker.py:_translated",
        "orchestrator/compliance/launcher.py:_keeps_the_secret.start",
        "orchestrator/compliance/launcher.py:_bind_public",
        "orchestrator/coordination/work_service.py:_place",
    ]
)
"""They decide nothing: those who are refused, what checks launchers of others, and a word for where somebody is."""


@dataclass(frozen=True)
class Rule:
    """Somebody is let in or not.

    Attributes:
        says: What it demands.
        where: The functions that hold it, each as `file:function`.
        refused: Tests of who does not fulfil it, each as `file:test`; files are in `tests/`.
        let_in: Tests of who does.
    """

    says: str
    where: tuple[str, ...]
    refused: tuple[str, ...]
    let_in: tuple[str, ...]


_ACCESS = "policy_server/test_access.py:test_"
_SECRETS = "protos/test_secrets.py:test_"
_FRONTS = "bridges/test_fronts.py:test_"
_ADMISSION = "orchestrator/test_admission.py:test_"
_SERVICE = "orchestrator/test_work_service.py:test_"
_COORDINATOR = "orchestrator/test_coordinator.py:test_"
_HOSTILE = "orchestrator/test_hostile_worker.py:test_"
_PAGES = "orchestrator/test_view_pages.py:test_"
_CHECKPOINTS = "lerobot/test_hostile_checkpoints.py:test_"

RULES: Final = (
    Rule(
        "nobody listens beyond this machine without a secret",
        ("protos/net/access.py:check_reach",),
        (f"{_SECRETS}beyond_this_machine_nobody_listens_without_a_secret",),
        (f"{_SECRETS}beyond_this_machine_it_takes_a_secret_or_a_word", f"{_SECRETS}on_this_machine_nothing_is_needed"),
    ),
    Rule(
        "so it is with a policy server, the wires beside it, and its metrics",
        ("policy_server/server.py:PolicyServer._check_reach",),
        (
            f"{_ACCESS}nobody_listens_beyond_this_machine_without_a_token",
            f"{_ACCESS}tls_alone_is_no_secret",
            f"{_FRONTS}beyond_this_machine_it_wants_a_token",
            f"{_FRONTS}a_wire_that_does_not_refuse_strangers_is_not_for_them_even_with_a_token",
            "policy_server/test_metrics.py:test_beyond_this_machine_they_are_told_only_if_that_is_meant",
        ),
        (
            f"{_ACCESS}beyond_this_machine_with_a_token_or_if_that_is_meant",
            f"{_FRONTS}a_wire_that_does_not_refuse_strangers_is_not_for_them_even_with_a_token",
            "policy_server/test_metrics.py:test_beyond_this_machine_they_are_told_only_if_that_is_meant",
        ),
    ),
    Rule(
        "so it is with a run",
        ("orchestrator/coordination/admission.py:check_admission",),
        (
            f"{_ADMISSION}beyond_this_machine_a_secret_is_wanted_unless_it_is_meant",
            f"{_ADMISSION}the_policys_token_is_not_for_everybody",
        ),
        (
            f"{_ADMISSION}beyond_this_machine_a_secret_is_wanted_unless_it_is_meant",
            f"{_ADMISSION}the_policys_token_is_not_for_everybody",
        ),
    ),
    Rule(
        "so it is with a live page",
        ("orchestrator/view/server.py:ViewOptions.token",),
        (f"{_PAGES}listening_for_others_needs_a_token_or_a_word",),
        (f"{_PAGES}listening_for_others_needs_a_token_or_a_word",),
    ),
    Rule(
        "a token is long enough, and not for every user of the machine to read",
        ("protos/net/access.py:read_token",),
        (f"{_SECRETS}a_token_that_can_be_guessed_is_refused", f"{_SECRETS}a_token_that_everybody_can_read_is_refused"),
        (
            f"{_SECRETS}a_token_that_its_user_or_a_group_can_read_is_taken",
            f"{_SECRETS}what_is_not_this_users_to_change_is_taken_as_it_is",
        ),
    ),
    Rule(
        "a token is compared as a whole",
        ("protos/net/access.py:brought",),
        (f"{_ACCESS}without_the_right_token_nobody_is_let_in",),
        (f"{_ACCESS}with_token_and_ca_all_is_as_ever",),
    ),
    Rule(
        "whoever calls a policy server brings its token, over gRPC as in frames; health checks need none",
        (
            "policy_server/authentication.py:refusal",
            "policy_server/authentication.py:_refusing.refuse",
            "policy_server/framed.py:_FramedStream._begin",
        ),
        (
            f"{_ACCESS}without_the_right_token_nobody_is_let_in",
            f"{_ACCESS}the_unix_socket_is_plain_but_wants_the_token",
            "policy_server/test_framed.py:test_the_token_is_wanted_here_too",
            "lerobot/test_async_clients.py:test_a_client_without_the_token_is_refused",
        ),
        (
            f"{_ACCESS}with_token_and_ca_all_is_as_ever",
            f"{_ACCESS}health_is_open_and_reflection_is_not",
            "policy_server/test_framed.py:test_the_token_is_wanted_here_too",
        ),
    ),
    Rule(
        "where callers are known by certificates, they show one that the CA has signed",
        ("protos/net/credentials.py:server_credentials", "orchestrator/coordination/admission.py:Admission.of"),
        (
            f"{_ACCESS}without_one_or_with_a_strangers_no_caller_is_let_in",
            f"{_ADMISSION}without_one_or_with_a_strangers_nobody_is_let_in",
        ),
        (
            f"{_ACCESS}a_certificate_that_its_ca_has_signed_lets_a_caller_in",
            f"{_ADMISSION}a_certificate_of_its_own_lets_a_worker_in",
        ),
    ),
    Rule(
        "web sockets are for those who bring the token, and not for pages of other sites",
        ("policy_server/bridges/servers/websockets_front.py:WebSocketFront._checked",),
        (f"{_FRONTS}whoever_has_not_the_token_is_refused", f"{_FRONTS}pages_of_other_sites_are_refused"),
        (
            "bridges/test_access_of_web_sockets.py:test_the_token_in_all_ways_and_whatever_else_comes_in_its_place",
            f"{_FRONTS}health_needs_no_token",
        ),
    ),
    Rule(
        "GR00T's clients bring the token in each request",
        ("policy_server/bridges/servers/groot.py:GrootFront._answered",),
        (f"{_FRONTS}groots_clients_bring_the_token_in_each_request",),
        (f"{_FRONTS}groots_clients_bring_the_token_in_each_request",),
    ),
    Rule(
        "whoever joins a run brings its join token",
        (
            "orchestrator/coordination/admission.py:Admission.fault",
            "orchestrator/coordination/work_service.py:WorkService.Work",
        ),
        (
            f"{_SERVICE}who_does_not_bring_the_join_token_hears_of_nothing",
            f"{_ADMISSION}with_a_token_file_the_certificate_is_not_enough",
            "e2e/test_joining.py:test_a_worker_without_the_secret_hears_what_it_lacks_and_the_run_goes_on",
        ),
        (
            f"{_ADMISSION}with_tls_and_the_token",
            f"{_SERVICE}with_insecure_everybody_who_comes_over_tcp_is_let_in",
            "e2e/test_joining.py:test_over_tls_with_certificates_on_both_sides",
        ),
    ),
    Rule(
        "only workers that a run has started can end it, and have more slots when it grows",
        (
            "orchestrator/coordination/admission.py:Admission.is_launched",
            "orchestrator/coordination/error_limits.py:ErrorLimits.heard",
            "orchestrator/coordination/policy_reports.py:PolicyReports.unreachable",
            "orchestrator/coordination/work_service.py:WorkService._take_in",
            "orchestrator/coordination/work_service.py:WorkService._get_ready",
        ),
        (
            f"{_HOSTILE}workers_from_elsewhere_cannot_end_a_run_that_starts_its_own",
            f"{_HOSTILE}errors_of_workers_from_elsewhere_are_no_reason_to_give_a_run_up",
            f"{_HOSTILE}what_workers_from_elsewhere_say_of_the_policy_sends_them_away",
        ),
        (
            f"{_SERVICE}workers_that_the_run_has_started_are_told_from_others_by_their_token",
            f"{_HOSTILE}a_worker_that_the_run_has_started_is_believed_at_once",
            f"{_HOSTILE}that_the_policy_is_gone_is_believed_of_those_that_the_run_has_started",
        ),
    ),
    Rule(
        "about a lease its holder has a say, and nobody else",
        ("orchestrator/coordination/coordinator.py:Coordinator.handle",),
        (
            f"{_COORDINATOR}about_a_lease_of_another_worker_nobody_has_a_say",
            f"{_COORDINATOR}a_lease_cannot_be_guessed",
            f"{_HOSTILE}a_slot_that_says_a_thousand_times_that_it_is_free_gets_one_lease",
        ),
        (f"{_COORDINATOR}a_run_from_its_first_lease_to_its_end",),
    ),
    Rule(
        "a worker comes back with what it was given when it joined",
        ("orchestrator/coordination/members.py:Members.returning",),
        (
            f"{_SERVICE}who_was_never_here_cannot_come_back",
            f"{_SERVICE}what_somebody_else_has_got_is_not_given_back",
        ),
        (f"{_SERVICE}a_worker_that_comes_back_goes_on_with_what_nobody_else_has_got",),
    ),
    Rule(
        "a worker works for no benchmark that it has not offered",
        ("env_worker/worker/worker.py:Worker",),
        (
            "env_worker/test_worker.py:test_it_works_for_no_benchmark_that_it_has_not_offered",
            "env_worker/test_worker.py:test_it_gets_nothing_ready_that_it_has_not_offered",
        ),
        ("env_worker/test_worker.py:test_without_a_benchmark_it_offers_all_that_are_installed",),
    ),
    Rule(
        "a live page is for this machine's names, its own pages and those who bring the token, and to be looked at",
        (
            "orchestrator/view/access.py:Access.is_let_in",
            "orchestrator/view/access.py:Access.log_in",
            "orchestrator/view/access.py:Guard._refusal",
            "orchestrator/view/access.py:Guard._log_in",
        ),
        (
            f"{_PAGES}other_names_are_refused",
            f"{_PAGES}what_pages_of_others_ask_for_is_refused",
            f"{_PAGES}a_token_is_asked_for_and_a_browser_keeps_what_it_is_given_for_it",
            f"{_PAGES}nothing_can_be_done_but_looking",
        ),
        (
            f"{_PAGES}any_port_of_this_machine_will_do_as_through_a_tunnel",
            f"{_PAGES}names_where_it_listens_for_others",
            f"{_PAGES}links_from_elsewhere_and_the_pages_own_requests_are_welcome",
            f"{_PAGES}a_token_is_asked_for_and_a_browser_keeps_what_it_is_given_for_it",
        ),
    ),
    Rule(
        "films and runs that a page shows lie in its folder",
        ("orchestrator/view/shown_folder.py:",),
        (
            "orchestrator/test_view_strangers.py:test_what_is_opened_inside_a_folder_lies_in_there",
            "orchestrator/test_view_strangers.py:test_runs_that_lie_elsewhere_are_not_shown",
        ),
        (f"{_PAGES}films_are_those_of_episodes_and_lie_in_the_folder",),
    ),
    Rule(
        "secrets for Slurm are in folders that nobody else can read or exchange",
        ("orchestrator/launchers/slurm/shared_files.py:SharedFiles.written",),
        (
            "orchestrator/test_slurm_files.py:test_a_folder_that_lets_others_in_is_refused",
            "orchestrator/test_slurm_files.py:test_folders_that_others_can_exchange_are_no_place_for_secrets",
            "orchestrator/test_slurm_files.py:test_a_folder_of_another_user_is_refused",
        ),
        (
            "orchestrator/test_slurm_files.py:test_files_are_for_their_user_and_go_with_the_run",
            "orchestrator/test_slurm_files.py:test_the_group_of_one_user_is_nobody_else",
        ),
    ),
    Rule(
        "LIBERO's settings are read from a folder of this user's",
        ("env_worker/benchmarks/_libero/installation.py:write_config",),
        ("env_worker/test_libero_config.py:test_a_folder_that_somebody_else_may_have_made_is_not_used",),
        ("env_worker/test_libero_config.py:test_they_are_in_a_folder_for_this_user_alone",),
    ),
    Rule(
        "a client uses no socket for frames that is somebody else's",
        ("policy_server/framed_session.py:",),
        ("policy_server/test_framed.py:test_a_socket_that_is_somebody_elses_is_not_used",),
        ("policy_server/test_framed.py:test_a_session_near_by_uses_frames_and_answers_as_gRPC_does",),
    ),
    Rule(
        "nothing that comes with a checkpoint is run, unless it is trusted",
        (
            "policy_server/policies/_lerobot/inspection.py:refuse",
            "policy_server/policies/_lerobot/code_guard.py:CodeGuard",
        ),
        (f"{_CHECKPOINTS}a_class_is_not_called", f"{_CHECKPOINTS}torch_reads_weights_only"),
        (f"{_CHECKPOINTS}whoever_is_trusted_is_and_it_is_said", f"{_CHECKPOINTS}a_harmless_one_that_is_trusted"),
    ),
    Rule(
        "code that a result folder names is not run, unless it is allowed by its name",
        ("orchestrator/replay/trust.py:",),
        (
            "orchestrator/test_trust.py:test_no_command_imports_a_benchmark_that_a_folder_names",
            "orchestrator/test_trust.py:test_gymnasium_tasks_that_import_modules_are_refused",
        ),
        (
            "orchestrator/test_trust.py:test_no_command_imports_a_benchmark_that_a_folder_names",
            "orchestrator/test_trust.py:test_an_installed_benchmark_is_played_by_its_name",
        ),
    ),
    Rule(
        "pickles of LeRobot's wire are read if the user says so, and nothing that they name is called",
        ("policy_server/bridges/clients/lerobot_async.py:", "policy_server/bridges/pickles/reading.py:PickleReader"),
        ("bridges/test_pickles.py:test_nothing_that_a_pickle_names_is_called",),
        ("bridges/test_pickles.py:test_objects_are_names_and_attributes",),
    ),
)


def _inside(node: ast.AST, name: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yields everything in a file, each with the name of the function or class that it is in: `Class.function`."""
    for child in ast.iter_child_nodes(node):
        inner = name
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{name}.{child.name}".lstrip(".")
        yield inner, child
        yield from _inside(child, inner)


def _decides(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return (node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")) in DECIDE
    return isinstance(node, ast.Attribute) and node.attr in STATUSES


def decisions() -> set[str]:
    """Returns where in the code it is decided who is let in."""
    found = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            text = path.read_text()
            if "_pb2" not in path.name and any(word in text for word in DECIDE | STATUSES):
                place = path.relative_to(ROOT).as_posix()
                found |= {f"{place}:{name}" for name, node in _inside(ast.parse(text)) if _decides(node)}
    return found


def test_every_decision_is_a_rule() -> None:
    known = {place for rule in RULES for place in rule.where}
    assert decisions() - known - NO_RULES == set(), "rules of access without tests of both sides"
    assert decisions() >= NO_RULES


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.says)
def test_a_rule_has_tests_of_both_sides(rule: Rule) -> None:
    assert rule.refused
    assert rule.let_in
    for root, names in ((ROOT, rule.where), (ROOT / "tests", (*rule.refused, *rule.let_in))):
        for name in names:
            file, _, wanted = name.partition(":")
            assert wanted in {"", *(inner for inner, _ in _inside(ast.parse((root / file).read_text())))}, name
