"""Every setting of a run, wherever it comes from: flags, a YAML file, or the run.json of an earlier run.

They are grouped here by what they are about, and flat wherever people write or read them: one field is one flag and one
key. A group's fields are in groups.py, a policy server's in policy_server/options.py, a launcher's with the launcher.
"""

from sparring.orchestrator.settings.groups import (
    Evaluation,
    OutputSettings,
    PlanSettings,
    PolicySettings,
    WorkerSettings,
)
from sparring.orchestrator.settings.pairs import parse_pairs
from sparring.orchestrator.settings.read import read_settings, saved_settings
from sparring.orchestrator.settings.run import RunSettings, launcher_fields, setting_fields

__all__ = [
    "Evaluation",
    "OutputSettings",
    "PlanSettings",
    "PolicySettings",
    "RunSettings",
    "WorkerSettings",
    "launcher_fields",
    "parse_pairs",
    "read_settings",
    "saved_settings",
    "setting_fields",
]
