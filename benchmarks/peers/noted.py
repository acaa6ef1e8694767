"""What is noted of every contender alike, in its own processes: frames that MuJoCo drew, and what the network answered.

Two settings of LeRobot that its command does not have are changed here, too: how long a Meta-World episode is, and that
nothing is filmed. And LIBERO is told where its assets are, which it would download otherwise.
"""

from __future__ import annotations

import importlib.util
import mmap
import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

FOLDER: Final = os.environ.get("PEERS_NOTES", "")
STEPS: Final = int(os.environ.get("PEERS_STEPS") or 0)
FILMS: Final = os.environ.get("PEERS_FILMS", "") != "none"
ASSETS: Final = os.environ.get("SPARRING_LIBERO_ASSETS", "")


class _Frames:
    """A number in a file for each process: what ends with os._exit, as forked simulators do, has been counted, too."""

    def __init__(self) -> None:
        self._pid = 0
        self._number: Any = None

    def one_more(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            path = Path(FOLDER, f"{self._pid}.frames")
            path.write_bytes(bytes(8))
            with path.open("r+b") as file:
                self._number = mmap.mmap(file.fileno(), 8)
        self._number[:] = (int.from_bytes(self._number[:], "little") + 1).to_bytes(8, "little")


def _count_frames(mujoco: Any) -> None:
    frames, draw = _Frames(), mujoco.mjr_render

    def counted(*arguments: Any, **named: Any) -> Any:
        frames.one_more()
        return draw(*arguments, **named)

    mujoco.mjr_render = mujoco._render.mjr_render = counted


def _note_answers(module: Any) -> None:
    forward = module.ACT.forward

    def noted(self: Any, batch: Any) -> Any:
        answer = forward(self, batch)
        with Path(FOLDER, f"{os.getpid()}.answers").open("ab") as file:
            file.write(answer[0].detach().to("cpu").float().numpy().tobytes())
        return answer

    module.ACT.forward = noted


def _shorten(module: Any) -> None:
    make = module.MetaworldEnv.__init__

    def short(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        self._max_episode_steps = STEPS

    module.MetaworldEnv.__init__ = short


def _film_nothing(module: Any) -> None:
    evaluate = module.eval_policy_all
    module.eval_policy_all = lambda **named: evaluate(**{**named, "max_episodes_rendered": 0})


def _find_assets(module: Any) -> None:
    module._assets_path_cache = ASSETS


_AFTER: Final[dict[str, Callable[[Any], None]]] = {
    "mujoco": _count_frames,
    "lerobot.policies.act.modeling_act": _note_answers,
    **({"lerobot.envs.metaworld": _shorten} if STEPS else {}),
    **({} if FILMS else {"lerobot.scripts.lerobot_eval": _film_nothing}),
    **({"libero.libero": _find_assets} if ASSETS else {}),
}


class _Afterwards(MetaPathFinder):
    """Calls what is to be done with a module when it has been imported."""

    def __init__(self) -> None:
        self._searching = ""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in _AFTER or name == self._searching:
            return None
        self._searching = name
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching = ""
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def then(module: ModuleType) -> None:
            execute(module)
            _AFTER[name](module)

        if name == "libero.libero":
            from sparring.env_worker.benchmarks._libero.installation import write_config

            write_config(Path(ASSETS))  # else it asks on standard input
        spec.loader.exec_module = then  # type: ignore[method-assign]
        return spec


if FOLDER:
    sys.meta_path.insert(0, _Afterwards())
