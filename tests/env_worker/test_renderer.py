"""The name of the renderer: what GL says of itself, for each episode in which something was drawn."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sparring.env_worker.rendering.renderer import current_renderer

_DRAWS = """
import mujoco
from sparring.env_worker.rendering.renderer import current_renderer
assert current_renderer() == "", "nobody has drawn yet"
model = mujoco.MjModel.from_xml_string("<mujoco/>")
with mujoco.Renderer(model, 16, 16) as renderer:
    renderer.update_scene(mujoco.MjData(model))
    renderer.render()
    from OpenGL import GL
    said = ", ".join(GL.glGetString(name).decode() for name in (GL.GL_RENDERER, GL.GL_VENDOR, GL.GL_VERSION))
    assert current_renderer() == said, (current_renderer(), said)
    print(said)
assert current_renderer() == "", "no context is current any more"
"""
_PLAYS = """
from sparring.env_worker.gl import choose_backend
choose_backend()
from sparring.env_worker.benchmarks.metaworld import Metaworld, MetaworldSettings
from sparring.env_worker.episode.play import Order, run_episode
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import load_policy
from sparring.protos.episode_rules import EpisodeRules
task = Metaworld().tasks("reach-v3")[0]
simulator = Metaworld().make(task, MetaworldSettings(resolution=16))
for observation in ("observation.state", "observation.image", "observation.state"):
    policy = LocalPolicy(load_policy("random", {"observations": [observation]}), name="random")
    order = Order(task, 0, 3, EpisodeRules(max_steps=2))
    print(run_episode(simulator, policy.open(simulator.offers), order).renderer or "-")
"""

pytestmark = [pytest.mark.requires("rendering"), pytest.mark.processes]


def said_by(script: str, **variables: str) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("backend", ["egl", "osmesa"])
def test_it_is_what_gl_says(backend: str) -> None:
    assert "Mesa" in said_by(_DRAWS, MUJOCO_GL=backend, PYOPENGL_PLATFORM=backend)


def test_an_episode_has_one_if_something_was_drawn_in_it() -> None:
    before, drawn, after = said_by(_PLAYS, GALLIUM_DRIVER="softpipe").splitlines()
    assert drawn.startswith("softpipe, Mesa"), "the one that drew, not the one that is usual here"
    assert (before, after) == ("-", "-"), "nothing was drawn in these"


def test_nothing_is_said_where_nobody_draws() -> None:
    assert isinstance(current_renderer(), str), "it loads no library, and asks for no context"
