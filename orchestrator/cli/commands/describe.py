"""`sparring describe`: what a policy server hosts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
from rich.text import Text

from sparring.orchestrator.cli.server_access import server_access_options
from sparring.orchestrator.display.listing import print_listing
from sparring.policy_server.client import Description, PolicyClient, PolicyProgram
from sparring.protos.advice import FLAGS, Hint
from sparring.protos.errors import SparringError
from sparring.protos.net.access import Identity, read_ca, read_token
from sparring.protos.net.address import Address
from sparring.protos.spec import TensorSpec


@dataclass(frozen=True)
class _OwnFlags:
    """The words of this command, whose `--token-file` is a run's `--policy-token-file`."""

    def phrase(self, hints: Sequence[Hint]) -> str:
        return FLAGS.phrase([replace(hint, setting=hint.setting.removeprefix("policy_")) for hint in hints])


@click.command(short_help="show what a policy server hosts")
@click.argument("address")
@server_access_options
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True, help="seconds to wait for it"
)
@click.option("--json", "as_json", is_flag=True, help="print JSON, and nothing else, on standard output")
def describe(
    address: str,
    token_file: Path | None,
    ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Shows the policy that the server at ADDRESS hosts: its arguments, its checkpoint, and what it needs."""
    client = PolicyClient(
        Address.parse(address),
        timeout=timeout,
        token="" if token_file is None else read_token(token_file, flag="--token-file"),
        ca=b"" if ca is None else read_ca(ca, flag="--ca"),
        identity=Identity.read(tls_cert, tls_key, flags=("--tls-cert", "--tls-key")),
    )
    try:
        with client:
            found = client.describe()
    except SparringError as error:
        error.dialect = error.dialect or _OwnFlags()
        raise
    if as_json:
        click.echo(json.dumps(_document(found), allow_nan=False))
        return
    print_listing(("", ""), [(Text(what, style="bold"), value) for what, value in _lines(found)])


def _document(found: Description) -> dict[str, object]:
    needs = found.needs
    return {
        "policy": found.name,
        "arguments": dict(found.arguments),
        "checkpoint_sha256": found.checkpoint_sha256,
        "server_version": found.server_version,
        "observations": {name: _shape(need) for name, need in needs.named.items()},
        "history": needs.history,
        "action_dim": needs.action_dim,
        "chunk_length": needs.chunk_length,
        "control": needs.control,
        "program_sha256": found.program_sha256,
        "program": None if found.program is None else asdict(found.program),
    }


def _lines(found: Description) -> list[tuple[str, str]]:
    needs = found.needs
    looks = [(f"looks at {name}", _shape(need)) for name, need in needs.named.items()]
    return [
        ("policy", found.name),
        *((f"argument {name}", json.dumps(value)) for name, value in found.arguments.items()),
        ("checkpoint", found.checkpoint_sha256 or "none"),
        ("sparring", found.server_version),
        *(looks or [("looks at", "nothing, or what it asks for on each benchmark")]),
        ("history", str(needs.history)),
        ("action size", "what the benchmark takes" if needs.action_dim is None else str(needs.action_dim)),
        ("actions in a chunk", f"up to {needs.chunk_length}"),
        *([("actions are", needs.control)] if needs.control else []),
        *_program(found.program),
    ]


def _program(program: PolicyProgram | None) -> list[tuple[str, str]]:
    """Returns what the policy is made of, and where it runs; nothing, if its server does not say."""
    if program is None:
        return []
    files = {**program.files, **program.data}
    commit = f"{program.commit[:12]}, with changes" if program.modified else program.commit[:12]
    return [
        *((f"file {name}", sha256[:12]) for name, sha256 in files.items()),
        *((name, version) for name, version in program.packages.items()),
        *([("git commit", commit)] if commit else []),
        *([("package", program.package)] if program.package else []),
        *program.machine.items(),
    ]


def _shape(need: TensorSpec) -> str:
    return str(need) if need != TensorSpec() else "whatever the benchmark shows"
