"""The two small interfaces that a benchmark is: its tasks, and a simulator of one of them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar

from sparring.env_worker.benchmark_settings import not_taken
from sparring.env_worker.benchmark_settings import setting as setting  # where benchmarks look for it
from sparring.env_worker.protocol import Protocol
from sparring.env_worker.rendering.mark import drawing
from sparring.env_worker.rendering.renderer import current_renderer
from sparring.protos.errors import CodeBroken, SparringError, UsageError, unknown
from sparring.protos.installing import is_installed
from sparring.protos.spec import Offer, TensorSpec
from sparring.protos.tensor import Array

Names = frozenset[str]
Observation = Mapping[str, Array]

NOTHING: Names = frozenset()


@dataclass(frozen=True)
class Task:
    """One thing to do.

    Attributes:
        name: Unique in its benchmark: "reach-v3".
        instruction: The task as a sentence, for language-conditioned policies.
        group: The part of the selection that it was chosen by: a group's name, or its own.
    """

    name: str
    instruction: str
    group: str
    initial_states: int = 0
    """How many official initial states it has; episode k begins in number k modulo this. 0: the seed alone decides."""
    number: int = 0
    """Its place in the group, counted from 0: what LeRobot calls its id."""
    max_steps: int = 0
    """After how many steps its episodes are truncated; 0: only its simulator knows."""


@dataclass(frozen=True)
class Step:
    """What came of an action.

    Attributes:
        observation: What was looked at, by name; the simulator makes nothing else.
        reward: Of this step.
        terminated: Whether the task itself has ended the episode.
        truncated: Whether time has run out.
        success: Whether the task is done; None: that is not known at this step. An episode in which no step knows has
            no success and no failure: it counts by its rewards alone.
        metrics: What the benchmark measures beside success, by name: progress, a distance, sub-goals reached. Finite
            numbers. Of each name, the value that was reported last is the episode's.
    """

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    success: bool | None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass
class RenderMeter:
    """How many images a simulator made, how long that took, and what drew them.

    Attributes:
        renders: Images.
        seconds: That all of them took.
    """

    renders: int = 0
    seconds: float = 0.0
    renderer: str = ""
    """As GL calls it; empty: nothing was drawn yet, or not by GL in the thread that counts."""

    @contextmanager
    def image(self) -> Iterator[None]:
        """Counts one image and the time of making it."""
        began = time.perf_counter()
        with drawing():
            yield
        self.renders += 1
        self.seconds += time.perf_counter() - began
        if not self.renderer:  # a simulator keeps its context
            self.renderer = current_renderer()


class Simulator(ABC):
    """One task, ready to be played again and again.

    Looking is an argument of stepping: only what is looked at is made, and physics must be the same,
    bit for bit, whatever is looked at. Attributes `offers` and `meter` are set by the constructor.

    Attributes:
        offers: Everything that can be looked at, and the action space.
        meter: Counts the images made.
        camera: The observation, or the one of `cameras`, that films are made of: uint8 (height, width, 3), upright;
            None if there is none.
        same_view: Other observations of what `camera` shows, and how its frame is made of each, to the bit.
        max_steps: After how many steps an episode is truncated.
        success_advice: What to set so that it says what success is, if anything, in a sentence for people.
        warnings: Sentences that whoever evaluates should know, by the end of an episode: each is told once in a run.
    """

    offers: Offer
    meter: RenderMeter
    camera: str | None = None
    same_view: ClassVar[Mapping[str, Callable[[Array], Array]]] = {}
    max_steps: int
    success_advice: str = ""
    warnings: Sequence[str] = ()

    @abstractmethod
    def reset(self, *, seed: int, index: int, look: Names) -> Observation:
        """Begins an episode. The seed and the index decide everything about it; nothing is left of the one before.

        Args:
            seed: Seeds every generator of the simulator.
            index: Which of the task's episodes; benchmarks with a list of initial states choose by it.
            look: The observations to make.
        """

    @abstractmethod
    def step(self, action: Array, *, look: Names) -> Step:
        """Executes one action and makes the observations that are looked at."""

    @abstractmethod
    def close(self) -> None:
        """Frees the simulator and its GL context."""

    def prepare_images(self) -> None:  # noqa: B027  # most simulators have nothing to prepare
        """Makes what the first image needs and no episode has to wait for: a GL context, shaders.

        Called before the first reset, if at all, and changes nothing that is seen or counted after it.
        """

    @property
    def cameras(self) -> Sequence[str]:
        """Names of cameras that films can be made with, beside the images among what it offers."""
        return ()

    def picture(self, camera: str) -> Array:
        """Returns what one of `cameras` sees at this moment: uint8 (height, width, 3), upright. It changes nothing."""
        raise NotImplementedError(f"{type(self).__name__} names cameras, and makes no pictures")

    def snapshot(self) -> Array | None:
        """Returns what the episode looks like at this moment, as `picture`, for who watches it; None: it cannot."""
        return self.picture(self.cameras[0]) if self.cameras else None

    def physics_state(self) -> Array | None:
        """Returns all positions and velocities at this moment, as one row of floats; None: they cannot be told.

        A replay is held against them, step by step. Reading them changes nothing.
        """
        return None

    @property
    def tells_success(self) -> bool | None:
        """Whether it says what success is; None: only its steps show that.

        Runs that are about success are refused before the first episode if it does not.
        """
        return None


@dataclass(frozen=True)
class NoSettings:
    """The settings of a benchmark that has none."""


@dataclass(frozen=True)
class SmokeTest:
    """What `sparring smoke` expects of one episode.

    Attributes:
        task: A short one.
        layout: What the policies of this benchmark see, by name, with the default settings.
        policy: One that succeeds.
    """

    task: str
    layout: Mapping[str, TensorSpec]
    policy: str = "expert"


@dataclass(frozen=True)
class Assets:
    """Files that simulators need and pip does not bring, such as meshes; `Benchmark.fetch` gets them.

    Attributes:
        variable: The environment variable that names their folder where no setting does.
        setting: The field of the benchmark's settings that names it.
    """

    variable: str
    setting: str = "assets"


@dataclass(frozen=True)
class WorkerImage:
    """What workers in containers are made from.

    Attributes:
        name: Without a tag, it has that of this release of Sparring.
        build: The command that builds it, for people.
    """

    name: str
    build: str = ""


class BenchmarkBroken(CodeBroken):
    """The benchmark's own code raised when it was imported, made or asked for its tasks."""

    whose = "benchmark"


@contextmanager
def asking(name: str, what: str) -> Iterator[None]:
    """Lets a benchmark's own code be called inside; whatever it raises becomes a sentence.

    Args:
        name: Of the benchmark, as its user knows it.
        what: It is asked: `tasks()`.

    Raises:
        BenchmarkBroken: If it raised something that is no sentence yet.
    """
    try:
        yield
    except SparringError:
        raise
    except (Exception, SystemExit) as error:  # a user's benchmark may raise anything
        raise BenchmarkBroken(f"{what} of the benchmark {name!r} raised {type(error).__name__}: {error}") from error


class Benchmark(ABC):
    """A family of tasks that share their dependencies. Never imports its simulator before `make`.

    What is true of one benchmark alone is said here and nowhere else.

    Attributes:
        name: As given to --benchmark.
        summary: One line for `sparring ls benchmarks`.
        requires: Modules that must be importable for `make` to work.
        preload: Modules that slots import before they are forked, so that each starts in no time.
        settings: A frozen dataclass; its fields are what --benchmark-arg takes.
        tasks_per_process: After how many tasks a slot's process is replaced, for simulators that leak; 0 for never.
        smoke: One episode that shows whether an installation works; None if there is none.
        packages: Distributions that can change a number; their versions are recorded with every run.
        extra: The extra of the distribution that brings this benchmark, which installs what `requires` names.
        environment: The recipe of an interpreter of its own, for dependencies that cannot live beside others': a folder
            with `constraints.txt`, which pins every package, and `no-deps.txt`, with those that are installed without
            what they ask for.
        assets: What simulators need and pip does not bring; None: nothing.
        code_settings: Settings that can have other code run than the benchmark's own: those of somebody else's result
            folder are used only if the user allows it.
        shown_with: Images that simulators offer only with certain settings, by name, and those settings: recorded
            episodes are played again with them where such an image is wanted. They change what is seen, nothing else.
        image: What workers in containers are made from; None: `sparring/NAME`, built by the user.
        expert: The policy that `--policy expert` means, as `module:Class`; empty: there is none.
        replays: Whether the same actions give the same episode again, so that films and checks can be made afterwards;
            `sparring check benchmark` finds out.
        protocols: Named rules of evaluations that are known for it, beside its own defaults.
        fixed: What no setting changes and moves a score, in words: when success is checked, which cameras there are.
            Part of each protocol, and of its hash.
        fixed_by_layout: What of that is otherwise for policies behind another project's servers, by their layout.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    requires: ClassVar[Sequence[str]] = ()
    preload: ClassVar[Sequence[str]] = ()
    settings: ClassVar[type[Any]] = NoSettings
    tasks_per_process: ClassVar[int] = 0
    smoke: ClassVar[SmokeTest | None] = None
    packages: ClassVar[Sequence[str]] = ()
    extra: ClassVar[str] = ""
    environment: ClassVar[Path | None] = None
    assets: ClassVar[Assets | None] = None
    code_settings: ClassVar[Sequence[str]] = ()
    shown_with: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    image: ClassVar[WorkerImage | None] = None
    expert: ClassVar[str] = ""
    replays: ClassVar[bool] = True
    protocols: ClassVar[Sequence[Protocol]] = ()
    fixed: ClassVar[Mapping[str, str]] = {}
    fixed_by_layout: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    @abstractmethod
    def tasks(self, selection: str) -> Sequence[Task]:
        """Returns the tasks that a selection names: groups, single tasks, ranges, comma lists of these; each task once.

        `TaskTable` reads selections as all benchmarks should.

        Raises:
            UsageError: If something in it is unknown, with the nearest known names.
        """

    @abstractmethod
    def groups(self) -> Mapping[str, Sequence[str]]:
        """Returns the names of groups and of the tasks in them."""

    @abstractmethod
    def make(self, task: Task, settings: Any) -> Simulator:
        """Makes a simulator of a task; called in the slot, never before the fork."""

    def planned(self, tasks: Sequence[Task], settings: Any) -> Sequence[Task]:
        """Returns tasks as they are with these settings, where limits or initial states depend on them."""
        return tasks

    def fetch(self, settings: Any) -> None:  # noqa: B027  # most benchmarks have nothing to fetch
        """Gets what simulators need and pip does not bring, such as meshes. Needs nothing of what `requires` names.

        Raises:
            SparringError: If it cannot be had, with what to do.
        """

    def prepare(self, settings: Any) -> None:
        """Called once per worker, before slots are forked."""
        self.fetch(settings)

    def modules(self, tasks: Sequence[Task]) -> Sequence[str]:
        """Returns modules that tasks come from, where these are not the benchmark's own: a run notices their changes.

        None, unless a benchmark plays what its users write.
        """
        return ()

    def module_named_by(self, task: str) -> str:
        """Returns the module that the name of a task has imported, whoever has given the name; empty: there is none.

        A result folder may be anybody's: its tasks are played again only if this is empty, or the user allows it.
        """
        return ""

    def draws_with_mujoco(self) -> bool:
        """Returns whether simulators draw with MuJoCo: then devices for that are looked for where a worker starts."""
        return "mujoco" in self.requires

    def missing(self) -> list[str]:
        """Returns the required modules that are not installed here."""
        return [name for name in self.requires if not is_installed(name)]

    def read_settings(self, given: Mapping[str, Any]) -> Any:
        """Reads the benchmark's settings from what was given to --benchmark-arg.

        Raises:
            UsageError: If a key is unknown, or a value has the wrong type or is not one that the setting takes.
        """
        assert is_dataclass(self.settings)
        known = {f.name: f for f in fields(self.settings)}
        for key, value in given.items():
            if key not in known:
                raise unknown(f"setting of the benchmark {self.name!r}:", key, known)
            default = known[key].default
            if (
                default is not None
                and type(value) is not type(default)
                and not (isinstance(default, float) and isinstance(value, int))
            ):
                raise self._wrong(key, type(default).__name__, value)
            if wanted := not_taken(known[key], value):
                raise self._wrong(key, wanted, value)
        try:
            return self.settings(**given)
        except ValueError as error:  # of a check of its own, for what is wrong with several of them together
            raise UsageError(f"the settings of the benchmark {self.name!r} cannot be: {error}") from error

    def _wrong(self, key: str, wanted: str, value: Any) -> UsageError:
        return UsageError(f"the setting {key!r} of the benchmark {self.name!r} must be {wanted}, not {value!r}.")
