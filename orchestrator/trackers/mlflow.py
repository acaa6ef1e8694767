"""MLflow. Where the program has a run of its own open, the numbers go into that."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import Field

from sparring.orchestrator.trackers.base import TableCell, TrackedRun, Tracker, TrackerSettings

_LONGEST: Final = 500
"""Characters of a parameter's value that every store takes."""
_AT_ONCE: Final = 100
"""Parameters, or numbers, in one call."""


class MlflowSettings(TrackerSettings):
    """Says where in MLflow a run is kept."""

    uri: str | None = Field(
        None, description="of the server or store; MLFLOW_TRACKING_URI or MLflow's own, if left out"
    )
    experiment: str = Field("sparring", description="the experiment")
    name: str | None = Field(None, description="of the run; what is evaluated on what, if left out")
    run: str | None = Field(None, description="id of a run to go on in, such as that of the training")


class Mlflow(Tracker[MlflowSettings]):
    """A run of MLflow."""

    name: ClassVar[str] = "mlflow"
    summary: ClassVar[str] = "MLflow, by a server or in local files"
    library: ClassVar[str] = "mlflow"
    extra: ClassVar[str] = "mlflow"
    settings: ClassVar[type[TrackerSettings]] = MlflowSettings

    def __init__(self, own: MlflowSettings) -> None:
        super().__init__(own)
        # Asked now: which run is open is said of the thread that asks.
        mlflow = sys.modules.get("mlflow")
        active = None if mlflow is None or own.uri is not None else mlflow.active_run()
        self._shared = active is not None and own.run in (None, active.info.run_id)
        """Whether the run is somebody else's, who goes on with it."""
        self._id = str(active.info.run_id) if active is not None and self._shared else ""
        self._client: Any = None

    def open(self, run: TrackedRun) -> str:
        from mlflow import MlflowClient

        self._client = client = MlflowClient(tracking_uri=self.own.uri)
        earlier = self._id or self.own.run or run.id
        if earlier:
            known = client.get_run(earlier).data.params
            self._id = earlier
            if not self._shared:
                client.update_run(earlier, status="RUNNING")
        else:
            known = {}
            self._id = str(client.create_run(self._experiment(), run_name=self.own.name or run.title).info.run_id)
        self._params({name: value for name, value in run.config.items() if f"sparring.{name}" not in known})
        return self._id

    def log(self, numbers: Mapping[str, float], at: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = iter([Metric(_key(name), value, now, at) for name, value in numbers.items()])
        while some := list(islice(metrics, _AT_ONCE)):
            self._client.log_batch(self._id, metrics=some)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[TableCell]], at: int) -> None:
        # As MLflow's own tables are, for which it would want pandas; of one training there is one per evaluation.
        content = {"columns": list(columns), "data": [list(row) for row in rows]}
        self._client.log_dict(self._id, content, f"{_key(name)}-{at}.json")

    def film(self, name: str, path: Path, caption: str, at: int) -> None:
        self._client.log_artifact(self._id, str(path), f"{_key(name.rpartition('/')[0])}/{at}")

    def facts(self, facts: Mapping[str, Any], at: int) -> None:
        for name, value in facts.items():
            self._client.set_tag(self._id, f"sparring.{_key(name)}", _text(value))

    def close(self, *, finished: bool) -> None:
        if not self._shared:
            self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(self.own.experiment)
        return str(self._client.create_experiment(self.own.experiment) if found is None else found.experiment_id)

    def _params(self, config: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        def params() -> Iterator[Any]:
            for name, value in config.items():
                if value not in (None, {}, [], ""):
                    yield Param(f"sparring.{_key(name)}", _text(value))

        found = params()
        while some := list(islice(found, _AT_ONCE)):
            self._client.log_batch(self._id, params=some)


def _key(name: str) -> str:
    """Returns a name as MLflow takes it."""
    return re.sub(r"[^\w.\- /]", "_", name)[:250]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
