"""What is made of a run that is really going on, by another process: what there is, marked so, and nothing changed."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Sparring, orphans, page_content, recorded, wait_for

from sparring import Results

pytestmark = pytest.mark.processes

PLAY = ("run", "--benchmark", "toy", "--benchmark-arg", "step_seconds=0.02", "--task", "short", "--max-steps", "20")


@pytest.fixture
def going(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a run that goes on, somewhere else than where the commands of the test leave nothing behind."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    more = ("--policy", "toy_policies:Forward", "--slots", "1", "--episodes", "200", "--output", "going")
    command = [sys.executable, "-m", "sparring", *PLAY, *more]
    with subprocess.Popen(command, cwd=elsewhere, stderr=subprocess.PIPE, text=True, start_new_session=True) as run:
        try:
            wait_for(lambda: recorded(elsewhere / "going") >= 3, seconds=120)
            yield elsewhere / "going"
            assert run.poll() is None, "the run has ended before everything was asked"
        finally:
            run.send_signal(signal.SIGINT)
            _, errors = run.communicate(timeout=120)
    assert run.returncode == 130, errors
    assert Results.load(elsewhere / "going").status == "unfinished"
    assert orphans(elsewhere) == []


def test_report_compare_and_show_of_a_run_that_goes_on(going: Path, usage: Sparring, tmp_path: Path) -> None:
    run = str(going)
    said = usage("show", run)
    assert said.returncode == 0, said.stderr
    assert "running now: " in said.stdout
    assert json.loads(usage("show", run, "--json").stdout)["status"] == "running"

    made = usage("report", run, "--output", "reports")
    assert made.returncode == 0, made.stderr
    content = page_content(tmp_path / "reports" / "report.html")
    assert content["status"] == "running"
    assert 3 <= len(content["episodes"]["index"]) < 200
    assert re.search(r"\d+ of 200 episodes, running\.", (tmp_path / "reports" / "report.md").read_text())
    table = usage("report", run, "--format", "csv", "--output", "-").stdout
    assert 3 <= len(list(csv.DictReader(io.StringIO(table)))) < 200
    suites = ET.fromstring(usage("report", run, "--format", "junit", "--output", "-").stdout)
    assert len(suites.findall(".//testcase")) == 200
    assert 0 < len(suites.findall(".//error[@type='missing']")) <= 197, "those that were not run yet"

    played = usage(*PLAY, "--policy", "zero", "--episodes", "6", "--in-process", "--output", "before")
    assert played.returncode == 0, played.stderr
    for order in (("before", run), (run, "before")):
        compared = usage("compare", *order)
        assert compared.returncode == 0, compared.stderr
        flat = " ".join(compared.stdout.split())
        assert "(running now: " in flat
        assert "not finished: p and intervals of the table hold only if the number" in flat
    by_return = json.loads(usage("compare", "before", run, "--metric", "return", "--json").stdout)
    assert 3 <= by_return["rounds"] <= 6
    assert usage("compare", "before", run, "--html", "compare.html", "--films", "0").returncode == 0
    assert page_content(tmp_path / "compare.html")["comparisons"][0]["runs"][1]["status"] == "running"
