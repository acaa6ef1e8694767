"""Notices that a run goes on with other programs than it began with: code, arguments, weights, versions of packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sparring.env_worker.registry import distribution_of, get_benchmark
from sparring.orchestrator.coordination.bounds import OutOfBounds
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.makers import BENCHMARK, POLICY, Maker
from sparring.orchestrator.results.programs import NOTE, Program
from sparring.orchestrator.results.renderers import renderers_of
from sparring.orchestrator.settings import RunSettings
from sparring.policy_server.client import Description
from sparring.protos.advice import Hint
from sparring.protos.data_files import data_of
from sparring.protos.errors import UsageError
from sparring.protos.installing import OURS
from sparring.protos.sources import sources_of

_ALWAYS: Final = "numpy"
"""Decides numbers of every benchmark, whoever names it."""

_MOST: Final = 256
"""Different programs that workers from elsewhere may come with, and sentences on such things, in one run."""
_MOST_LINES: Final = 20
"""Of differences, in a sentence."""


class ChangedProgram(UsageError):
    """A run would go on with another policy or benchmark, or other packages, than those that made its episodes."""


class ProgramCheck:
    """Knows what made the episodes that a run has, and holds what would make the next ones against it.

    Args:
        settings: Of the run.
        plan: Of the run.
        journal: Of the run.
        accept: Whether changes are told, and not refused.
        warn: Gets sentences on what people should know.
    """

    def __init__(
        self, settings: RunSettings, plan: Plan, journal: Journal, *, accept: bool, warn: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._own: dict[str, Mapping[str, str]] = {}
        self._data: dict[str, Mapping[str, str]] = {}
        """Files that settings name, by benchmark: as they are when its first worker comes."""
        self._of_workers: dict[str, Program] = {}
        self._journal = journal
        self._accept = accept
        self._warn = warn
        self._parts = {part.label: part for part in settings.plan.parts}
        makers = journal.makers()
        rows = [row for row in journal.rows() if row.outcome != "error"]
        self._counts = Counter(row.benchmark for row in rows)
        self._renderers = {
            name: list(renderers_of(row for row in rows if row.benchmark == name)) for name in self._counts
        }
        self._made = [
            (who, makers[number])
            for number, who in sorted({(row.maker, row.benchmark) for row in rows})
            if number in makers
        ]
        self._warned: set[str] = set()
        self._deciding: dict[str, set[str]] = {}
        """Packages that decide numbers, by benchmark."""
        self._noted: set[str] = set()

    def policy(self, description: Description) -> str:
        """Checks the policy, and returns the hash of its program; nothing, if its server does not say what it hosts.

        Raises:
            ChangedProgram: If it is another one, with the difference.
        """
        program, packages = _program_of(description), _packages_of(description)
        made, count = [maker for _, maker in self._made], self._counts.total()
        return self._checked(POLICY, "the policy", program, "policy_server", packages, made, count)

    def benchmark(
        self, name: str, files: Mapping[str, str], versions: Mapping[str, str], *, counted: bool = False
    ) -> str:
        """Checks the benchmark as a worker has it, and returns the hash of its program.

        Args:
            name: Of the benchmark, or of its evaluation, if that has one.
            files: Its own source files, with their hashes.
            versions: Of all packages that the worker tells of.
            counted: Whether the worker is from elsewhere: of programs that such ones bring, there is an end.

        Raises:
            ChangedProgram: If it is another one, with the difference.
            OutOfBounds: If it is one too many.
        """
        part = self._parts[name]
        if name not in self._deciding:  # to look through what is installed takes time, and a thousand workers may join
            benchmark = get_benchmark(part.benchmark)
            self._deciding[name] = {_ALWAYS, *benchmark.packages, distribution_of(part.benchmark)} - {OURS}
        packages = {package: version for package, version in versions.items() if package in self._deciding[name]}
        if name not in self._own:  # of what users write, as far as it can be found from here
            modules = get_benchmark(part.benchmark).modules(self._plan.tasks.get(name, ()))
            self._own[name] = sources_of(modules).files if modules else {}
        if name not in self._data:
            self._data[name] = data_of(part.benchmark_arg, folders=False)  # folders are often written to
        program = Program(
            files={**self._own[name], **files}, data=dict(self._data[name]), arguments=dict(part.benchmark_arg)
        )
        if counted and program.sha256 not in self._of_workers and len(self._of_workers) >= _MOST:
            raise OutOfBounds(f"workers have come with {_MOST} different programs, and no more are taken in.")
        made = [maker for benchmark, maker in self._made if benchmark == name]
        sha256 = self._checked(
            BENCHMARK, f"the benchmark {name!r}", program, "worker", packages, made, self._counts[name]
        )
        self._of_workers[sha256] = program
        return sha256

    def renderers(self, name: str) -> Sequence[str]:
        """Returns what may draw for a benchmark, or for its evaluation: what has drawn before; empty: anything may."""
        return [] if self._accept else self._renderers.get(name, [])

    def take_over(self, previous: ProgramCheck) -> None:
        """Notes what the workers of a run that has ended play: they told that run, and have loaded it since."""
        self._of_workers = dict(previous._of_workers)
        for sha256, program in self._of_workers.items():
            self._note(sha256, program)

    def _checked(
        self,
        what: str,
        called: str,
        program: Program | None,
        where: str,
        packages: Mapping[str, str],
        made: list[Maker],
        count: int,
    ) -> str:
        sha256 = "" if program is None else program.sha256
        programs = [self._program_differences(what, program, maker) for maker in made]
        known = [differences for differences in programs if differences is not None]
        # A maker of which only versions were written down may have had any program that is known, and no other.
        of_others = next((differences for differences in known if not differences), known[-1] if known else [])
        found: list[str] = []
        for maker, differences in zip(made, programs, strict=True):  # the last of them came last
            found = [
                *(of_others if differences is None else differences),
                *_version_differences(where, packages, maker),
            ]
            if not found:
                break
        if found:
            self._changed(called, found, count)
        elif count and not known:
            self._warn_once(
                f"whether {called} is still the one that made the {count} episodes recorded so far cannot be "
                f"checked: {'its server does not say what it hosts' if program is None else 'it was not written down'}."
            )
        if program is not None:
            self._note(sha256, program)
        return sha256

    def _note(self, sha256: str, program: Program) -> None:
        if sha256 not in self._noted:
            self._journal.set_meta(f"{NOTE}{sha256}", program.model_dump())
            self._noted.add(sha256)

    def _program_differences(self, what: str, program: Program | None, maker: Maker) -> list[str] | None:
        """Returns in what a program is not a maker's; None if that cannot be known."""
        note = self._journal.meta(f"{NOTE}{maker.programs[what]}") if what in maker.programs else None
        return None if note is None or program is None else Program.model_validate(note).differences(program)

    def _changed(self, called: str, found: list[str], count: int) -> None:
        found = _cut(found)
        lines = "\n".join(f"  {line}" for line in found)
        if not self._accept:
            raise ChangedProgram(
                f"{called} is not what made the {count} episodes recorded in {str(self._journal.path.parent)!r}:"
                f"\n{lines}\nPut it back as it was, go on with {Hint('accept_changes')} (the results will say so), or "
                f"give another {Hint('output')}."
            )
        self._warn_once(f"{called} is not what made the {count} episodes recorded so far: {'; '.join(found)}.")

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._warned and len(self._warned) < _MOST:
            self._warned.add(sentence)
            self._warn(sentence)


def changed_while_running(before: Description, now: Description) -> str:
    """Says that the policy server was started with another program in the middle of a run, and what differs."""
    one, other = _program_of(before), _program_of(now)
    found = one.differences(other) if one and other else ["its server does not say what it hosts any more"]
    packages = _packages_of(before), _packages_of(now)
    found += [
        f"{name}: {there} there, {packages[1].get(name, 'not there')} now"
        for name, there in packages[0].items()
        if packages[1].get(name) != there
    ]
    lines = "\n".join(f"  {line}" for line in _cut(found))
    return (
        f"the policy server was started anew in the middle of the run, with another program; the run stops:\n{lines}\n"
        f"Put it back as it was and resume; or resume with {Hint('accept_changes')}, and the results will say so."
    )


def _version_differences(where: str, packages: Mapping[str, str], maker: Maker) -> list[str]:
    recorded = maker.versions.get(where, {})
    return [
        f"{package}: {recorded[package]} there, {version} now"
        for package, version in sorted(packages.items())
        if recorded.get(package, version) != version
    ]


def _cut(found: list[str]) -> list[str]:
    """Returns so many differences as people read."""
    more = len(found) - _MOST_LINES
    return found if more <= 0 else [*found[:_MOST_LINES], f"and {more} more"]


def _program_of(description: Description) -> Program | None:
    told = description.program
    if told is None:
        return None
    return Program(
        files=dict(told.files),
        data=dict(told.data),
        arguments=dict(description.arguments),
        checkpoint_sha256=description.checkpoint_sha256 or None,
    )


def _packages_of(description: Description) -> Mapping[str, str]:
    return {} if description.program is None else description.program.packages
