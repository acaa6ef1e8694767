"""Gymnasium environments that draw in every step: counted, told, and drawn where somebody looks, if it is asked for."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from sparring import Evaluator, Policy, PolicySpec, RunListener
from sparring.env_worker.benchmark import NOTHING, Names
from sparring.env_worker.benchmarks.gym import Gym, GymSettings
from sparring.env_worker.gl import choose_backend
from sparring.protos.errors import UsageError

PIXELS: Names = frozenset({"pixels.top"})
ACTIONS = np.random.default_rng(3).uniform(-1, 1, (6, 2)).astype(np.float32)


class Physics:
    """As dm_control has it: a simulation that renders by the name of a camera."""

    def __init__(self) -> None:
        self.where = np.zeros(2)
        self.drawn: list[str] = []

    def render(self, height: int, width: int, camera_id: str) -> Any:
        self.drawn.append(camera_id)
        shades = {"top": 60.0, "angle": 90.0}[camera_id] * (2 + self.where.sum())
        return np.full((height, width, 3), shades, np.uint8)


class Painter(gymnasium.Env):
    """Draws two cameras in every step, and shows one of them, as gym-aloha does."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 10}
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, does: str = "", render_mode: str | None = "rgb_array") -> None:
        self.render_mode = render_mode
        self.physics = Physics()
        self._does = does
        side = 32 if does == "halves" else 16
        self.observation_space = gymnasium.spaces.Dict(
            {
                "pixels": gymnasium.spaces.Dict({"top": gymnasium.spaces.Box(0, 255, (side, 16, 3), np.uint8)}),
                "where": gymnasium.spaces.Box(-99, 99, (2,), np.float64),
            }
        )
        if does == "hides it":
            self._hidden = self.physics.render
            self.physics.render = None  # type: ignore[assignment,method-assign]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.physics.where = self.np_random.uniform(-1, 0, 2)
        self._before = np.zeros((16, 16, 3), np.uint8)
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.physics.where = self.physics.where + action / 9
        observation = self._observation()
        reward = float(observation["pixels"]["top"].mean()) if self._does == "rewards what it sees" else 1.0
        return observation, reward, False, False, {"is_success": False}

    def render(self) -> Any:
        return self.physics.render(24, 24, "angle")

    def _observation(self) -> Any:
        draw = self._hidden if self._does == "hides it" else self.physics.render
        top, angle = draw(16, 16, camera_id="top"), draw(16, 16, camera_id="angle")
        if self._does == "halves":
            top = np.concatenate([top, angle])
        if self._does == "remembers":
            top, self._before = self._before, top
        return {"pixels": {"top": top}, "where": self.physics.where.copy()}


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    gymnasium.register("Painter-v0", Painter, max_episode_steps=6)


def make(does: str = "", **settings: Any) -> Any:
    benchmark = Gym()
    return benchmark.make(benchmark.tasks("Painter-v0")[0], GymSettings(kwargs={"does": does}, **settings))


def drawn(simulator: Any) -> list[str]:
    """The cameras that the simulator has drawn since this was asked last."""
    cameras = simulator._env.unwrapped.physics.drawn
    taken = list(cameras)
    cameras.clear()
    return taken


def play(simulator: Any, looks: Sequence[Names]) -> list[Any]:
    """What came of an episode, where nobody looks without the images."""
    seen = [simulator.reset(seed=7, index=0, look=looks[0] | {"where"})]
    drawn(simulator)
    for action, look in zip(ACTIONS, looks[1:], strict=False):
        step = simulator.step(action, look=look | {"where"})
        seen.append((step.reward, step.terminated, step.truncated, dict(step.observation)))
    return seen


def test_what_is_drawn_in_every_step_is_counted_and_told() -> None:
    simulator = make()
    simulator.reset(seed=1, index=0, look=PIXELS)
    assert simulator.warnings == ()
    before, spent = simulator.meter.renders, simulator.meter.seconds
    simulator.step(ACTIONS[0], look=PIXELS)
    assert (simulator.meter.renders - before, simulator.warnings) == (2, ()), "somebody looks"
    assert simulator.meter.seconds > spent
    simulator.step(ACTIONS[0], look=NOTHING)
    assert simulator.meter.renders - before == 4
    (warning,) = simulator.warnings
    assert "Painter-v0 draws its images in every step" in warning
    assert '{{benchmark_arg.draw="on-look"}}' in warning


def test_on_look_only_what_is_looked_at_is_drawn_and_nothing_else_changes() -> None:
    always, on_look = make(), make(draw="on-look")
    looks = [PIXELS, NOTHING, NOTHING, PIXELS, NOTHING, PIXELS]
    expected, seen = play(always, looks), play(on_look, looks)
    assert drawn(always) == ["top", "angle"] * 5
    assert drawn(on_look) == ["top", "top"], "at two steps, and not the camera that it shows to nobody"
    np.testing.assert_equal(seen, expected)
    assert seen[3][3]["pixels.top"].any()
    assert on_look.warnings == ()
    before = on_look.meter.renders
    on_look.step(ACTIONS[0], look=NOTHING)
    assert on_look.meter.renders == before


def test_an_image_that_is_made_of_several_has_all_of_them() -> None:
    always, on_look = make("halves"), make("halves", draw="on-look")
    looks = [PIXELS, NOTHING, PIXELS]
    np.testing.assert_equal(play(on_look, looks), play(always, looks))
    assert drawn(on_look) == ["top", "angle"]


def test_the_rendered_frame_is_drawn_and_counted_once_beside_that() -> None:
    simulator = make(draw="on-look", render=True)
    simulator.reset(seed=1, index=0, look=NOTHING)
    before = simulator.meter.renders
    drawn(simulator)
    step = simulator.step(ACTIONS[0], look=frozenset({"observation.image"}))
    assert step.observation["observation.image"].any()
    assert (drawn(simulator), simulator.meter.renders - before) == (["angle"], 1)


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("remembers", "'pixels.top' has something of steps before in it"),
        ("rewards what it sees", "its rewards or ends"),
    ],
)
def test_an_environment_that_needs_its_images_is_not_kept_from_drawing(does: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"cannot draw on look: {why}"):
        make(does, draw="on-look")
    make(does)


def test_a_function_that_is_not_known() -> None:
    simulator = make("hides it")
    simulator.reset(seed=1, index=0, look=NOTHING)
    assert simulator.meter.renders == 1, "so many images at least were made"
    (warning,) = simulator.warnings
    assert "not known: their time counts as physics" in warning
    assert "{{benchmark_arg.drawn_by}}" in warning
    with pytest.raises(UsageError, match=r"not known.*drawn_by"):
        make("hides it", draw="on-look")
    with pytest.raises(UsageError, match=r"does not draw with 'paint': there is no such function"):
        make(drawn_by="paint")
    with pytest.raises(UsageError, match=r"does not draw with 'render': it is not called in its steps"):
        make(drawn_by="render")
    assert make("hides it", drawn_by="_hidden", draw="on-look").warnings == ()


def test_others_of_the_same_class_are_left_alone() -> None:
    on_look, other = make(draw="on-look"), Painter()
    other.reset(seed=1)
    assert other.step(ACTIONS[0])[0]["pixels"]["top"].any()
    on_look.close()


class Chunks(Policy):
    """Looks at every third step."""

    spec = PolicySpec(["pixels.top"], action_dim=2, chunk_length=3)

    def act(self, observations: Sequence[Any], states: Sequence[Any]) -> Sequence[Any]:
        return [np.zeros((3, 2)) for _ in observations]


class Heard(RunListener):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def on_warning(self, sentence: str) -> None:
        self.warnings.append(sentence)


def test_a_run_tells_it_once_and_counts_it_as_rendering() -> None:
    heard = Heard()
    plan: Any = {"benchmark": "gym", "tasks": "Painter-v0", "episodes": 2, "in_process": True, "watchers": [heard]}
    with Evaluator() as evaluator:
        drawn = evaluator.evaluate(Chunks(), **plan)
        (warning,) = heard.warnings
        assert "draws its images in every step" in warning
        assert 'benchmark_arg={"draw": "on-look"}' in warning, "in the words of whoever reads it"
        on_look = evaluator.evaluate(Chunks(), **plan, benchmark_arg={"draw": "on-look"})
    assert [row.renders for row in drawn.rows] == [14, 14]
    assert [row.renders for row in on_look.rows] == [2, 2]
    assert len(heard.warnings) == 1
    assert (list(drawn.warnings), on_look.warnings) == (heard.warnings, []), "it stands under the table, too"
    assert all(row.render_s > 0 for row in drawn.rows)
    assert [row.reward_sum for row in drawn.rows] == [row.reward_sum for row in on_look.rows]


@pytest.mark.requires("rendering")
def test_one_that_is_closed_takes_nothing_of_what_another_draws_with() -> None:
    """Of two in one process: GL frees what is in the context that is current, whosever that is."""
    assert choose_backend(), "no GL backend: run tools/system-libraries"
    benchmark, settings = Gym(), GymSettings(render=True)
    made = [benchmark.make(benchmark.tasks(name)[0], settings) for name in ("HalfCheetah-v5", "Hopper-v5")]
    for simulator in made:
        simulator.reset(seed=1, index=0, look=NOTHING)
    before = made[1].snapshot()
    assert before is not None
    for still in range(3):
        if still == 1:
            made[0].close()
        if still == 2:
            del simulator, made[0]
            gc.collect()
        assert np.array_equal(made[-1].snapshot(), before)
    made[-1].close()
