"""Episodes for other programs: CSV, Parquet, and JUnit's XML, which CI systems show."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Final, Literal
from xml.etree import ElementTree

from sparring.orchestrator.results.files import replace_file
from sparring.orchestrator.results.frames import episode_columns
from sparring.orchestrator.results.results import Results, episodes_csv
from sparring.orchestrator.results.row import EpisodeRow
from sparring.protos.errors import UsageError
from sparring.protos.installing import install_command
from sparring.protos.plain_text import plain

TableFormat = Literal["csv", "parquet", "junit"]


def write_table(results: Results, name: TableFormat, target: Path | BinaryIO) -> None:
    """Writes the episodes of a run; a file is replaced in one go.

    Raises:
        SparringError: If it cannot be written.
        UsageError: If a library for it is missing.
    """
    data = _WRITERS[name](results)
    if not isinstance(target, Path):
        target.write(data)
        return
    replace_file(target, data)


def _csv(results: Results) -> bytes:
    return episodes_csv(results).encode()


def _parquet(results: Results) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        how = install_command("report") or "pip install pyarrow"
        raise UsageError(f"Parquet needs pyarrow; install it: {how}") from None
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(episode_columns(results)), buffer)
    return buffer.getvalue()


def _junit(results: Results) -> bytes:
    """Returns a test case per episode. A failure of the policy is a failure there, and an error an error."""
    suites = ElementTree.Element("testsuites", name="sparring")
    rows: defaultdict[tuple[str, str], list[EpisodeRow]] = defaultdict(list)
    for row in results.rows:
        rows[row.benchmark, row.task].append(row)
    missing: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for id in sorted(set(results.plan.ids()) - {row.id for row in results.rows}):
        missing[id.benchmark, id.task].append(id.index)
        rows[id.benchmark, id.task] += []
    for (benchmark, task), episodes in rows.items():
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=_xml(f"{benchmark}/{task}"),
            tests=str(len(episodes) + len(missing[benchmark, task])),
            failures=str(sum(row.outcome == "failure" for row in episodes)),
            errors=str(sum(row.outcome == "error" for row in episodes) + len(missing[benchmark, task])),
            time=f"{sum(row.seconds for row in episodes):.3f}",
        )
        if benchmark in results.protocols:
            protocol, properties = results.protocols[benchmark], ElementTree.SubElement(suite, "properties")
            for name, value in (("protocol", protocol.label), ("protocol_sha256", protocol.sha256)):
                ElementTree.SubElement(properties, "property", name=name, value=_xml(value))
        for row in episodes:
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=_xml(f"{benchmark}.{task}"),
                name=f"episode {row.index}",
                time=f"{row.seconds:.3f}",
            )
            told = f"{row.steps} steps, return {row.reward_sum:g}, seed {row.seed}"
            if row.outcome == "failure":
                ElementTree.SubElement(case, "failure", message="the task was not done").text = told
            elif row.outcome == "error":
                ElementTree.SubElement(case, "error", type=_xml(row.error_kind), message=_xml(row.error)).text = told
        for index in missing[benchmark, task]:
            case = ElementTree.SubElement(
                suite, "testcase", classname=_xml(f"{benchmark}.{task}"), name=f"episode {index}"
            )
            ElementTree.SubElement(case, "error", type="missing", message="it has not been run yet")
    ElementTree.indent(suites)
    return bytes(ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)) + b"\n"


def _xml(text: str) -> str:
    """Returns a text without what XML 1.0 cannot hold, however it is escaped."""
    return plain(text).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")


_WRITERS: Final[Mapping[TableFormat, Callable[[Results], bytes]]] = {"csv": _csv, "parquet": _parquet, "junit": _junit}
