"""Every setting of a run, wherever it comes from: flags, a YAML file, or the run.json of an earlier run.

They are grouped here by what they are about, and flat wherever people write or read them: one field is one flag and one
key. Each group has a file here; a policy server's are in policy_server/options.py, a launcher's with the launcher.
"""

from sparring.orchestrator.settings.output import OutputSettings
from sparring.orchestrator.settings.pairs import parse_pairs
from sparring.orchestrator.settings.plan import Evaluation, PlanSettings
from sparring.orchestrator.settings.policy import PolicySettings
from sparring.orchestrator.settings.read import read_settings, saved_settings
from sparring.orchestrator.settings.run import RunSettings, hosting_fields, launcher_fields, setting_fields
from sparring.orchestrator.settings.worker import WorkerSettings

__all__ = [
    "Evaluation",
    "OutputSettings",
    "PlanSettings",
    "PolicySettings",
    "RunSettings",
    "WorkerSettings",
    "hosting_fields",
    "launcher_fields",
    "parse_pairs",
    "read_settings",
    "saved_settings",
    "setting_fields",
]
