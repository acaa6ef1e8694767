"""The privileged observations of LIBERO have fixed shapes: scenes that just fit, and scenes with one thing more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sparring.env_worker.benchmarks._libero import scene
from sparring.env_worker.benchmarks._libero.scene import PrivilegedScene, SceneTooLarge


@pytest.mark.parametrize(("frames", "joints"), [(scene.MAX_FRAMES, 0), (1, scene.MAX_JOINTS)])
def test_frames_and_joints_of_a_scene(frames: int, joints: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(frames: int, joints: int) -> PrivilegedScene:
        def add(self: Any, name: str, thing: Any, *, fixture: bool) -> None:
            (self._joints if name.startswith("joint") else self._frames).append({"entity": name})

        monkeypatch.setattr(PrivilegedScene, "_add_entity", add)
        names = [f"frame{n}" for n in range(frames - 1)] + [f"joint{n}" for n in range(joints)]
        environment: Any = SimpleNamespace(
            sim=SimpleNamespace(model=SimpleNamespace(_model=None)),
            robots=[SimpleNamespace(eef_site_id=0)],
            objects_dict=dict.fromkeys(names),
            fixtures_dict={},
            object_sites_dict={},
            parsed_problem={"goal_state": []},
            get_object=lambda name: None,
        )
        return PrivilegedScene(environment)

    assert read(frames, joints).scene is not None
    more = (frames + 1, joints) if frames > 1 else (frames, joints + 1)
    with pytest.raises(SceneTooLarge, match=f"scene has {more[0]} frames and {more[1]} joints"):
        read(*more)
