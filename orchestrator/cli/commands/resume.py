"""`sparring resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from sparring.orchestrator.cli.evaluation import broken_code_told, evaluate_settings, tell_finished
from sparring.orchestrator.cli.finished import finished_results
from sparring.orchestrator.cli.options import accept_option, given, setting_options
from sparring.orchestrator.cli.viewing import view_flags, view_options
from sparring.orchestrator.results.document import read_document
from sparring.orchestrator.settings import hosting_fields, launcher_fields, read_settings, saved_settings

_MORE: Final = "episodes"
_ALSO_NOW: Final = (
    _MORE,
    "slots",
    "policy_server",
    "policy_token_file",
    "policy_ca",
    "policy_tls_cert",
    "policy_tls_key",
    "serve_on",
    "serve_replicas",
    "serve_folder",
    "launcher",
    "listen",
    "join_token_file",
    "listen_tls_cert",
    "listen_tls_key",
    "listen_client_ca",
    "insecure",
    "render_device",
    "in_process",
    "track",
    "track_step",
    "track_arg",
)
"""Settings that may be others now than they were, beside those of launchers: no episode depends on them."""


@click.command(short_help="go on with a run that was interrupted")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="print the results as JSON, and nothing else, on standard output")
@accept_option
@view_options
@setting_options([*_ALSO_NOW, *launcher_fields(), *hosting_fields()])
def resume(
    folder: Path,
    as_json: bool,
    accept_changes: bool,
    view: bool,
    view_listen: str | None,
    view_token_file: Path | None,
    **values: Any,
) -> int:
    """Goes on with the run whose results are in FOLDER, with the settings saved there.

    Of a finished run it prints the table, and loads and changes nothing; with more --episodes it plays those.
    """
    now = given(values)
    if _MORE not in now and (finished := finished_results(folder)) is not None:
        return tell_finished(finished, as_json)
    saved = saved_settings(read_document(folder).settings, now)
    with broken_code_told(folder):  # a launcher's
        settings = read_settings({**saved, "output": folder})
    flags = view_flags(view, view_listen, view_token_file)
    return evaluate_settings(settings, as_json, accept_changes=accept_changes, view=flags)
