"""Pages that are made once, when they are asked for: reports, comparisons, and what could not be shown."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import urlencode

from starlette.responses import HTMLResponse, Response

from sparring.orchestrator.comparison.comparable import NotComparable
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.report.content import FilmsOf, report_content
from sparring.orchestrator.report.page import report_page
from sparring.orchestrator.results.results import Results, compared_metric
from sparring.orchestrator.view.shown_folder import document_of, load_shown, traces_of
from sparring.protos.advice import FLAGS, render
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.installing import install_command
from sparring.protos.plain_text import plain


def report_document(folder: Path, root: Path) -> Response:
    """Returns the report of a run; its films are asked for at this server.

    Args:
        folder: Of the run.
        root: The folder that was named: that one, or one that it is in.

    Raises:
        SparringError: If there is nothing to make one of.
    """
    results = load_shown(folder, root)
    content = report_content(results, document_of(results), folder, traces_of(results, root))
    episodes = content["episodes"]
    episodes["film"] = [
        f"film/{task}/{index}{Path(film).suffix}" if film else ""
        for task, index, film in zip(episodes["task"], episodes["index"], episodes["film"], strict=True)
    ]
    return _self_contained(report_page(content))


def _self_contained(page: str) -> Response:
    """Returns a page that has its script in it; no other is run."""
    # What comes from a run is in another element, of data, and has no `<` in it.
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src 'self' data:; "
        "media-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return HTMLResponse(page, headers={"content-security-policy": policy})


def comparison_document(runs: Sequence[tuple[str, Path, Path]], *, force: bool, metric: str = "") -> Response:
    """Returns a comparison of the first run with each of the others.

    Args:
        runs: What they are known by, their folders, and the folders that were named.
        force: Whether to compare what is not comparable.
        metric: By what, `success` or `return`; empty: by returns if all of the runs were about them.
    """
    folders = [folder for _, folder, _ in runs]
    names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(folder) for folder in folders]
    try:
        return _self_contained(_compared(runs, names, force=force, metric=metric))
    except NotComparable as error:
        asked = [*(("run", id) for id, _, _ in runs), *([("metric", metric)] if metric else []), ("force", "1")]
        again = f'<p><a href="{escape(f"/compare?{urlencode(asked)}")}">compare all the same</a></p>'
        reasons = "".join(f"<li>{_text(render(sentence, FLAGS))}</li>" for sentence in error.found)
        told = "These runs are not comparable: what moves a score is not the same in both."
        return _page("A comparison", f"<div class=notice><b>{told}</b><ul>{reasons}</ul></div>{again}", 422)
    except SparringError as error:
        return error_document(error.told(FLAGS), 422, "A comparison")


def _compared(runs: Sequence[tuple[str, Path, Path]], names: Sequence[str], *, force: bool, metric: str) -> str:
    try:
        from sparring.orchestrator.comparison.comparison import compare
        from sparring.orchestrator.comparison.returns import compare_returns
        from sparring.orchestrator.report.compared_returns import returns_content
        from sparring.orchestrator.report.comparison import FilmsOfRun, comparison_content, comparison_page
    except ModuleNotFoundError:  # everything else can be had without scipy
        how = install_command("compare") or "pip install scipy"
        raise UsageError(f"a comparison needs scipy; install it: {how}") from None
    results = [load_shown(folder, root) for _, folder, root in runs]
    films = [FilmsOfRun(_films(id, one)) for (id, _, _), one in zip(runs, results, strict=True)]
    if (metric or compared_metric(results)) == "return":
        by_returns = [compare_returns(results[0], other, force=force) for other in results[1:]]
        return comparison_page(returns_content(by_returns, results, names, films))
    found = [compare(results[0], other, force=force) for other in results[1:]]
    return comparison_page(comparison_content(found, names, films))


def _films(id: str, results: Results) -> dict[EpisodeId, str]:
    """Returns where the films of a run's episodes are served."""
    assert results.folder is not None, "a run that was loaded has a folder"
    tasks = {(benchmark, task.name): at for at, (benchmark, task) in enumerate(results.plan.labels().values())}
    films = FilmsOf(results)
    return {
        row.id: f"/run/{id}/film/{tasks[row.benchmark, row.task]}/{row.index}{Path(film).suffix}"
        for row in results.rows
        if (row.benchmark, row.task) in tasks and (film := films.address(row, results.folder))
    }


def error_document(sentence: str, status: int, title: str = "Sparring") -> Response:
    """Returns a page that says what is wrong."""
    return _page(title, f"<div class=notice><p>{_text(sentence)}</p></div>", status)


def _page(title: str, inner: str, status: int = 200) -> Response:
    return HTMLResponse(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{_text(title)}</title><link rel=icon href=/web/icon.svg>"
        "<link rel=stylesheet href=/web/base.css><link rel=stylesheet href=/web/live.css>"
        f"<header><h1>{_text(title)}</h1><p><a href=/>all runs</a></p></header><main><section>{inner}</section></main>",
        status,
    )


def _text(text: str) -> str:
    return escape("\n".join(map(plain, text.splitlines())))
