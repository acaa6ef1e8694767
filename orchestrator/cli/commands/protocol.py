"""`sparring protocol`: the named rules of evaluations, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from sparring.protos.errors import UsageError, unknown

if TYPE_CHECKING:
    from sparring.env_worker.benchmark import Benchmark
    from sparring.env_worker.protocol import WholeProtocol

_benchmark_option = click.option("--benchmark", help="of which benchmark, where several have such a protocol")


# Nothing heavy is imported before it is known what is asked.
@click.group(short_help="the named rules of evaluations: what they say, and what differs")
def protocol() -> None:
    """Shows protocols: the rules of an evaluation that move a score and are not the policy."""


@protocol.command("show", short_help="show every rule of a protocol")
@click.argument("name")
@_benchmark_option
@click.option("--yaml", "as_yaml", is_flag=True, help="as a file to begin one of your own with")
@click.option("--json", "as_json", is_flag=True, help="print JSON, and nothing else, on standard output")
def show_protocol(name: str, benchmark: str | None, as_yaml: bool, as_json: bool) -> None:
    """Shows every rule of a protocol, by its name or that of a YAML file."""
    from pathlib import Path

    from sparring.env_worker.protocol import protocols_of
    from sparring.orchestrator.settings.protocols import is_file, read_protocol

    found = _found(name, benchmark)
    if as_json:
        documents = [{"name": p.name, "version": p.version, "sha256": p.sha256, **p.values} for _, p in found]
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
        return
    for number, (owner, whole) in enumerate(found):
        click.echo("" if number == 0 or as_yaml else "\n", nl=False)
        if as_yaml:
            click.echo(_yaml(whole, first=number == 0), nl=False)
            continue
        known = read_protocol(Path(name), owner) if is_file(name) else protocols_of(owner)[whole.name]
        click.echo(f"{owner.name}: {whole.label} ({whole.sha256[:12]})")
        click.echo(f"{known.summary}\n")
        _print(("rule", "value", "what it decides"), _rules(owner, whole))
        if whole.conventions:
            click.echo("\nWhat no setting changes:\n")
            _print(("", ""), list(whole.conventions.items()))
        if known.differs:
            click.echo("\nWhat is not as in the original:\n")
            click.echo("\n".join(f"- {sentence}" for sentence in known.differs))


@protocol.command("diff", short_help="show how two protocols differ")
@click.argument("first")
@click.argument("second")
@_benchmark_option
@click.option("--json", "as_json", is_flag=True, help="print JSON, and nothing else, on standard output")
def diff_protocols(first: str, second: str, benchmark: str | None, as_json: bool) -> None:
    """Shows what two protocols have otherwise, and which way a score usually moves from the first to the second."""
    from sparring.env_worker.protocol import differences

    there, here = (dict((p.benchmark, (owner, p)) for owner, p in _found(name, benchmark)) for name in (first, second))
    both = [name for name in there if name in here]
    if not both:
        raise UsageError(f"no benchmark has both {first!r} and {second!r}; see: sparring ls protocols")
    documents = []
    for number, name in enumerate(both):
        owner, one, other = there[name][0], there[name][1], here[name][1]
        found = list(differences(owner, one, other))
        if as_json:
            told = [{"rule": d.rule.name, "first": d.first, "second": d.second, "effect": d.effect} for d in found]
            documents.append({"benchmark": name, "first": one.label, "second": other.label, "differences": told})
            continue
        click.echo("" if number == 0 else "\n", nl=False)
        if not found:
            click.echo(f"{name}: {one.label} and {other.label} are the same rules ({one.sha256[:12]})")
            continue
        click.echo(f"{name}: {one.label} ({one.sha256[:12]}) and {other.label} ({other.sha256[:12]})\n")
        rows = [(d.rule.name, _told(d.first), _told(d.second), d.rule.what, d.effect) for d in found]
        headings = ("rule", one.name, other.name, "what it decides", f"a score by {other.name} is then usually")
        _print(headings, rows)
    if as_json:
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))


def _found(name: str, benchmark: str | None) -> list[tuple[Benchmark, WholeProtocol]]:
    """Returns the protocols that a name means, each with its benchmark.

    Raises:
        UsageError: If there is none.
    """
    from pathlib import Path

    from sparring.env_worker.protocol import protocols_of
    from sparring.env_worker.registry import all_benchmarks, get_benchmark
    from sparring.orchestrator.settings.config_file import ConfigFile
    from sparring.orchestrator.settings.protocols import find_protocol, is_file

    if is_file(name):
        owner = get_benchmark(benchmark or str(ConfigFile.read(Path(name)).values.get("benchmark", "")))
        return [(owner, find_protocol(owner, name))]
    owners = list(all_benchmarks().values()) if benchmark is None else [get_benchmark(benchmark)]
    found = [owner for owner in owners if name in protocols_of(owner)]
    if not found:
        known = sorted({known for owner in owners for known in protocols_of(owner)})
        raise unknown("protocol", name, known, hint="See: sparring ls protocols")
    return [(owner, find_protocol(owner, name)) for owner in found]


def _rules(owner: Benchmark, whole: WholeProtocol) -> list[tuple[str, str, str]]:
    from sparring.env_worker.protocol import rules_of, value_of

    return [
        (rule.name, _told(value_of(whole, place)), rule.what)
        for place, rule in rules_of(owner).items()
        if not place.startswith("conventions.")
    ]


def _told(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _yaml(whole: WholeProtocol, *, first: bool) -> str:
    """Returns a protocol as a file of a user's own has it, under another name."""
    import yaml

    def lines() -> Iterator[str]:
        if not first:
            yield "---\n"
        head = {"name": f"my-{whole.name}", "version": 1, "benchmark": whole.benchmark, "extends": whole.name}
        rest = {"seed": whole.seed, "settings": dict(whole.settings), "rules": dict(whole.rules)}
        yield yaml.safe_dump({**head, **rest}, sort_keys=False)

    return "".join(lines())


def _print(headings: tuple[str, ...], rows: Any) -> None:
    from sparring.orchestrator.display.listing import print_listing

    print_listing(headings, rows)
