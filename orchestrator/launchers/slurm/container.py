"""Workers from an image where there is no Docker: by Apptainer, Pyxis (Enroot) or Charliecloud."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, cast, get_args

from sparring.protos.advice import Hint
from sparring.protos.comma_list import comma_list
from sparring.protos.errors import UsageError

ContainerKind = Literal["apptainer", "singularity", "pyxis", "charliecloud"]
SECRETS: Final = Path("/mnt")
"""Where a container sees the run's secret and certificate: a folder that every image has."""
# What a login node's shell says of its own Python, folders and health checks means nothing in there. Our images have
# their Python in a place that only their settings name, and Charliecloud does not read these.
_INSIDE: Final = (
    *("env", "-u", "PYTHONPATH", "-u", "PYTHONHOME", "-u", "SPARRING_VENVS", "-u", "SPARRING_HEARTBEAT"),
    *("-u", "XDG_CACHE_HOME", "PYTHONNOUSERSITE=1", "HOME=/tmp"),
)
_FOUND_BY: Final = 'PATH="/opt/venv/bin:$PATH:/usr/local/bin:/usr/bin:/bin"; export PATH; exec "$0" "$@"'
_FETCHED: Final = re.compile(r"[a-z-]+:/")
"""How an image begins that is fetched from somewhere: docker, library, oras, https."""
_GPU_OPTIONS: Final = ("gres", "gpus", "gpus-per-node", "gpus-per-task")
# Nothing of the job's environment is seen in there, but for this: which of a node's GPUs are the job's.
_OWN_GPUS: Final = (
    'if [ -n "${{CUDA_VISIBLE_DEVICES+x}}" ]; then export {prefix}_CUDA_VISIBLE_DEVICES="$CUDA_VISIBLE_DEVICES"; fi; '
    'exec "$0" "$@"'
)


@dataclass(frozen=True)
class WorkerContainer:
    """What workers of a benchmark are started in.

    Attributes:
        kind: What starts it.
        image: As that takes it.
    """

    kind: ContainerKind
    image: str

    @classmethod
    def parse(cls, text: str) -> WorkerContainer:
        """Reads `KIND:IMAGE`.

        Raises:
            UsageError: If it is none.
        """
        kind, separator, image = text.partition(":")
        if kind not in get_args(ContainerKind) or not separator or not image:
            raise UsageError(f"{text!r} is not KIND:IMAGE, where KIND is one of {', '.join(get_args(ContainerKind))}.")
        if not image.isprintable():
            raise UsageError(f"the name of the image {image!r} has characters that a batch script cannot have.")
        return cls(cast(ContainerKind, kind), image).on_every_node()

    def on_every_node(self) -> WorkerContainer:
        """Returns the same, by a name that means the same wherever a job begins."""
        is_path = self.kind == "charliecloud" or self.image.endswith((".sif", ".sqsh", ".sqfs", ".img"))
        if not is_path or _FETCHED.match(self.image):
            return self
        return WorkerContainer(self.kind, str(Path(self.image).expanduser().absolute()))

    def check(self) -> None:
        """Checks that there is such an image, where that can be seen here.

        Raises:
            UsageError: If not.
        """
        if self.image.startswith("/") and not Path(self.image).exists():
            raise UsageError(f"there is no image {self.image!r}, which {Hint('container')} names.")

    def check_shown(self, shown: Mapping[Path, Path]) -> None:
        """Checks that folders can be shown to it: what lists them has its own use for some characters.

        Raises:
            UsageError: If one cannot.
        """
        marks = ":" if self.kind == "charliecloud" else ":,"
        for folder in (str(folder) for folder in shown):
            if any(mark in folder for mark in marks):
                raise UsageError(
                    f"{self.kind} cannot show the folder {folder!r} to a container: its name has one of the characters "
                    f"{' '.join(marks)!r}. Name another."
                )

    def prefix(self, shown: Mapping[Path, Path], options: Mapping[str, str], slots: int) -> list[str]:
        """Returns what starts a program in it, on the node that a job has.

        Args:
            shown: Folders of the node that it may read, each with where it sees them.
            options: Of sbatch: what the job asks for.
            slots: Of the worker.
        """
        if self.kind == "pyxis":
            # srun does not take this over from the job: without it, all slots would be bound to one core.
            cores = options.get("cpus-per-task", str(slots))
            return ["srun", "--ntasks=1", f"--cpus-per-task={cores}", *self.step_options(shown)]
        if self.kind == "charliecloud":
            binds = [f"--bind={source}:{place}" for source, place in shown.items()]
            # It wants to know who it is for, which a job's environment need not say; and takes an image's own variables
            # from a file that not every image has.
            has_variables = Path(self.image, "ch", "environment").is_file()
            settings = [f"USER={_user()}", "ch-run", *(["--set-env"] if has_variables else [])]
            return ["env", *settings, *binds, self.image, "--"]
        binds = [f"--bind={source}:{place}:ro" for source, place in shown.items()]
        wants_gpu = any("gpu" in f"{name}={options[name]}" for name in _GPU_OPTIONS if name in options)
        own_gpus = ["sh", "-c", _OWN_GPUS.format(prefix=f"{self.kind.upper()}ENV")] if wants_gpu else []
        nv = ["--nv"] if wants_gpu else []
        # The current folder of a job is where it was submitted, often a home: without the last option it is shown, too.
        alone = ["--cleanenv", "--no-home", "--no-mount=cwd"]
        return [*own_gpus, self.kind, "exec", *alone, *nv, *binds, self.image]

    def step_options(self, shown: Mapping[Path, Path]) -> list[str]:
        """Returns the options of srun that start a step in it; empty: it takes none, `prefix` does."""
        if self.kind != "pyxis":
            return []
        mounts = ",".join(f"{source}:{place}:ro" for source, place in shown.items())
        return [f"--container-image={self.image}", f"--container-mounts={mounts}", "--no-container-mount-home"]

    def inside(self, worker: Sequence[str], variables: Mapping[str, str]) -> list[str]:
        """Returns a program and its arguments as they are started in there; more arguments may follow.

        Args:
            worker: The program, by a name that is found there, and its arguments.
            variables: For it.
        """
        given = [f"{name}={value}" for name, value in variables.items()]
        return [*_INSIDE, *given, "sh", "-c", _FOUND_BY, *worker]

    def make_ready(self, shown: Mapping[Path, Path]) -> None:
        """Has places in an image that is a folder for what it is shown: Charliecloud makes none.

        Raises:
            UsageError: If one is missing and cannot be made.
        """
        if self.kind != "charliecloud" or not Path(self.image).is_dir():
            return
        for place in shown.values():
            inside = Path(self.image, str(place).lstrip(os.sep))
            try:
                inside.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(
                    f"the image {self.image!r} has no folder {str(place)!r}, and it cannot be made: {error.strerror}. "
                    f"Make it there: mkdir -p {inside}"
                ) from error


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


@dataclass(frozen=True)
class ContainedProgram:
    """A program in a container, with what it is shown of the node.

    Attributes:
        container: That it is started in.
        secrets: Folder of the node with the run's secret and certificate.
        folders: Other folders of the node that it may read, by the same names.
        variables: For it.
        options: Of sbatch: what the job asks for.
        slots: Of the worker.
    """

    container: WorkerContainer
    secrets: Path
    folders: Sequence[Path] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    slots: int = 1

    @property
    def shown(self) -> dict[Path, Path]:
        """Folders of the node, each with where the program sees them."""
        return {self.secrets: SECRETS, **{folder: folder for folder in self.folders}}

    def seen(self, path: Path) -> Path:
        """Returns a file among the secrets by the name that the program sees it by."""
        return SECRETS / path.relative_to(self.secrets)

    def started(self, worker: Sequence[str]) -> list[str]:
        """Returns what a job starts it with; more of its arguments may follow."""
        head = self.container.prefix(self.shown, self.options, self.slots)
        return [*head, *self.container.inside(worker, self.variables)]

    def check(self) -> None:
        """Checks that the image is there, and can be shown what the program needs.

        Raises:
            UsageError: If not.
        """
        self.container.check()
        self.container.check_shown(self.shown)

    def make_ready(self) -> None:
        """Has places in the image for what the program is shown.

        Raises:
            UsageError: As `WorkerContainer.make_ready`.
        """
        self.container.make_ready(self.shown)

    def in_step(self, worker: Sequence[str]) -> tuple[list[str], list[str]]:
        """Returns the options of srun, and what the step starts it with."""
        inside = self.container.inside(worker, self.variables)
        options = self.container.step_options(self.shown)
        return options, inside if options else [*self.container.prefix(self.shown, self.options, self.slots), *inside]


def containers_of(text: str, benchmarks: Sequence[str]) -> dict[str, WorkerContainer]:
    """Reads what `container` says: `KIND:IMAGE` for every benchmark, or `BENCHMARK=KIND:IMAGE` with commas in between.

    Args:
        text: As it was given; empty: none.
        benchmarks: Of the run.

    Raises:
        UsageError: If it names none, or a benchmark that is not part of the run.
    """
    found: dict[str, WorkerContainer] = {}
    for item in comma_list(text):
        benchmark, separator, image = item.partition("=")
        if not separator or ":" in benchmark:
            found |= {name: WorkerContainer.parse(item) for name in benchmarks if name not in found}
        elif benchmark not in benchmarks:
            raise UsageError(f"{Hint('container')} names {benchmark!r}, which is not part of this run.")
        else:
            found[benchmark] = WorkerContainer.parse(image)
    return found
