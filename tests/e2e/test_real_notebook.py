"""`evaluate` in a real Jupyter kernel, where an event loop is running already: what its reader sees in the cells."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from support import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.everything]

CELLS = (
    """
from sparring import evaluate
from toy_policies import Forward, Raises

results = evaluate(Forward(), benchmark="toy", tasks="good", episodes=2, slots=2, progress=True)
""",
    "results",
    "print(results)",
    """
import asyncio
asyncio.get_running_loop()  # a kernel has one
evaluate(Forward(), benchmark="toy", tasks="short", episodes=1, slots=1, in_process=True)
""",
    """
class Watches:
    def on_result(self, row):
        return {}[row.task]

watched = evaluate(
    Forward(), benchmark="toy", tasks="good", episodes=2, slots=2, watchers=[Watches()], output="watched", progress=True
)
watched.overall.n
""",
    "evaluate(Raises(), benchmark='toy', tasks='short', episodes=1, no_such_setting=3)",
)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The cells of a notebook that was executed from its top to its end."""
    folder = tmp_path_factory.mktemp("notebook")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    book.cells[-1].metadata["tags"] = ["raises-exception"]
    client = NotebookClient(book, timeout=120, resources={"metadata": {"path": str(folder)}})
    # No kernel need be installed for this user: it is one of this very Python.
    manager = client.create_kernel_manager()
    manager.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    paths = [str(ROOT / "src"), str(ROOT / "tests" / "toy")]
    client.execute(env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JUPYTER_PLATFORM_DIRS": "1"})
    return list(book.cells)


def outputs(cell: Any, kind: str) -> list[Any]:
    return [output for output in cell.outputs if output.output_type == kind]


def streamed(cell: Any) -> str:
    return "".join(output.text for output in outputs(cell, "stream"))


def test_progress_is_seen_in_lines_under_its_own_cell_and_without_escape_sequences(cells: list[Any]) -> None:
    for number in (0, 4):  # the workers of the second are those of the first
        assert streamed(cells[number]).splitlines()[-1].startswith("4/4 episodes · success 100.0 %")
        assert "\x1b" not in streamed(cells[number])
        assert "session" not in streamed(cells[number]), "that workers stay is nothing to tell"


def test_results_are_a_table_in_html_and_in_plain_text(cells: list[Any]) -> None:
    (shown,) = outputs(cells[1], "execute_result")
    html, text = shown.data["text/html"], shown.data["text/plain"]
    assert html.count("<table") >= 1
    assert "overall" in html
    assert "100.0 %" in text
    assert not re.search("EpisodeRow|Results\\(", html + text)
    assert len(html) < 10_000
    assert streamed(cells[2]).strip() == text.strip()


def test_it_works_where_a_loop_is_running(cells: list[Any]) -> None:
    (shown,) = outputs(cells[3], "execute_result")
    assert "text/html" in shown.data


def test_a_watcher_that_raises_is_told_of_once_with_the_file_of_its_traceback(cells: list[Any]) -> None:
    assert outputs(cells[4], "execute_result")[0].data["text/plain"] == "4"
    assert streamed(cells[4]).count("the listener Watches raised KeyError in on_result") == 1
    assert re.search(r"\(traceback: \S*watched/errors/listener-[0-9a-f]{8}\.txt\)", streamed(cells[4]))


def test_a_mistake_is_a_sentence(cells: list[Any]) -> None:
    (error,) = outputs(cells[5], "error")
    assert error.ename == "UsageError"
    assert error.evalue.startswith("unknown setting of evaluate(): 'no_such_setting'")
