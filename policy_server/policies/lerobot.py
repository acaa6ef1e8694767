"""LeRobot checkpoints: `--policy lerobot:<folder or hub id>`.

One copy of the weights serves any number of sessions, in any mix: what LeRobot keeps on the policy object (queues of
actions and observations, averages, torch's global generator) belongs to the session here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch

from sparring.policy_server.policies._lerobot.checkpoint import (
    Checkpoint,
    import_lerobot,
    load_module,
    open_checkpoint,
    processor_steps,
    read_config,
    require_lerobot,
    require_steps,
)
from sparring.policy_server.policies._lerobot.code_guard import CodeGuard
from sparring.policy_server.policies._lerobot.environments import XvlaOnLibero, environments_of
from sparring.policy_server.policies._lerobot.episode_rng import EpisodeRng, Unsplittable
from sparring.policy_server.policies._lerobot.inspection import PROCESSORS
from sparring.policy_server.policies._lerobot.memory import ACTION, memory_of
from sparring.policy_server.policies._lerobot.sentences import SENTENCES, pads_to_neighbours
from sparring.policy_server.policies._lerobot.trial import Trial
from sparring.policy_server.policies.base import Observation
from sparring.policy_server.policies.preserve import preserved_rng
from sparring.policy_server.policies.torch import Batch, TooManyRows, TorchPolicy
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.spec import PolicySpec, TensorSpec

log = logging.getLogger(__name__)

_PREFIXES: Final = ("observation.images.", "observation.")
_EMPTY_CAMERA: Final = "observation.images.empty_camera_"
_MIRRORED: Final = {
    # LIBERO's cameras by robosuite's names are what robosuite renders. LeRobot's checkpoints have seen them mirrored in
    # height and width, whatever they were called; the raw ones would be a silent 0 %.
    "agentview_image": "observation.images.image",
    "robot0_eye_in_hand_image": "observation.images.image2",
}
_WARN: Final = "warn"
_DEMANDS_SHOWN: Final = 10
_RESIZING: Final = ("resize_imgs_with_padding", "image_resolution", "resize_shape")
_BY_ELEMENT: Final = {"unnormalizer_processor", "device_processor"}
"""Steps of a post-processor that treat every number of an action alike, however many actions there are."""


class LeRobotPolicy(TorchPolicy):
    """A LeRobot policy with its pre- and post-processors.

    Args:
        checkpoint: A folder that `save_pretrained` wrote, or a hub id, `owner/name` or `owner/name@revision`.
        rename: What the benchmark calls an observation of the policy: `{camera1: observation.image}`. The policy's name
            may be given without `observation.images.` or `observation.`.
        empty: Cameras of the policy that the benchmark does not have: masked where the family knows how, else black.
        any_resolution: Take images of any size, for policies that resize by themselves; `warn` takes them, too, and
            warns if they are not the checkpoint's and the configuration does not say that it resizes them.
        strict: Refuse weights that are not exactly those of the configuration.
        trust: Let the checkpoint, and the repositories that it names, run code here, and read files outside of its
            folder. Each is said in a warning.
        own_loop: Drive the policy through its own `select_action`, step by step, as is done by itself with policies
            that are seen to remember more than queues.
        device: See `TorchPolicy`, like dtype, autocast, deterministic, pad_to and threads.
        dtype: Of the weights, if not what the checkpoint has: `bfloat16` or `float16` for half precision.
        autocast: Mixed precision; a checkpoint that was saved with `use_amp` has it anyway.
        deterministic: Answers do not depend on which sessions share a batch.
        pad_to: Rows of a forward pass in deterministic mode.
        threads: CPU threads.
        overrides: Every other argument replaces a field of the checkpoint's configuration: `n_action_steps=10`.
    """

    casts_observations = False
    trial_sentences = SENTENCES

    def __init__(
        self,
        checkpoint: str,
        *,
        rename: Mapping[str, str] | None = None,
        empty: Sequence[str] = (),
        any_resolution: bool | str = False,
        strict: bool = True,
        trust: bool = False,
        own_loop: bool = False,
        device: str = "auto",
        dtype: str = "",
        autocast: str = "",
        deterministic: bool = False,
        pad_to: int = 8,
        threads: int = 0,
        **overrides: Any,
    ) -> None:
        super().__init__(
            device=device,
            dtype=dtype or "float32",
            autocast=autocast,
            deterministic=deterministic,
            pad_to=pad_to,
            threads=threads,
        )
        for name in ("pretrained_path", "pretrained_revision"):
            if name in overrides:
                raise UsageError(f"{name} is decided by the checkpoint's name: FOLDER or OWNER/NAME@REVISION.")
        require_lerobot()
        if any_resolution not in (True, False, _WARN):
            raise UsageError(f"any_resolution must be true, false or {_WARN}, not {any_resolution!r}.")
        if not isinstance(trust, bool):
            raise UsageError(f"trust must be true or false, not {trust!r}.")
        found = open_checkpoint(checkpoint, given=overrides, trust=trust)
        if trust:
            self._say_what_is_trusted(found)
        import_lerobot(found.type)
        self._guard = CodeGuard(trust=trust, told=self.warn)
        overrides["device"] = str(self.device)
        with self._guard():
            config = read_config(found, overrides)
        self._casts = bool(dtype) and getattr(config, "dtype", None) is None
        if dtype and not self._casts:  # the family has such a setting, and knows which of its parts can do with less
            with self._guard():
                config = read_config(found, {**overrides, "dtype": dtype})
        elif self._casts and self.dtype != torch.float32 and self._autocast is None:
            # Half-precision weights alone are not enough: networks make float32 tensors of their own on the way.
            self._autocast = self.dtype
        inputs = dict(config.input_features or {})
        self._empty = {_own_name(name, inputs) for name in _listed(empty)}
        self._names = _offered_names(inputs, rename or {}, self._empty)
        with self._guard(), preserved_rng():  # a network is made of random weights before it has the checkpoint's
            module = load_module(found, config, strict=strict)
        self._masks_cameras = hasattr(config, "empty_cameras")
        if self._empty and self._masks_cameras and not hasattr(config, "num_image_views"):
            # Not before the policy is made: it would take them for cameras beside those that it has. X-VLA fills up to
            # its number of views anyway, and would take one more for yet another view.
            config.empty_cameras += len(self._empty)
        # Not by place(): that would take the weights out of training, by which torch chooses between ways to multiply
        # that differ in the last digits, and these shall be LeRobot's.
        self._module = module.eval().to(device=self.device, dtype=self.dtype if self._casts else None)
        self._inputs = inputs
        with self._guard():
            self._pre, self._post = _processors(found, config, self.device)
        self._environments = environments_of(config, processor_steps(found, PROCESSORS[0]))
        self._post_by_element = processor_steps(found, PROCESSORS[1]).keys() <= _BY_ELEMENT
        self._post_by_step = True
        self._rng = EpisodeRng(self.device)
        with self._guard():
            self._by_sentence = pads_to_neighbours(self._pre, self._zeros())
        if config.use_amp and self._autocast is None:
            self._autocast = torch.get_autocast_dtype(self.device.type)
        trial = Trial(self._module, self.device, self._made_up, self._computing)
        with self._guard():
            self._memory = memory_of(self._module, _inner(module), trial, warn=self.warn, own_loop=own_loop)
        self._is_warm = trial.has_run
        self._most_rows = self._memory.rows_at_once
        self.checkpoint_sha256 = found.sha256
        self.spec = PolicySpec(
            _needs(inputs, self._names, any_resolution=bool(any_resolution)),
            action_dim=_action_dim(config),
            chunk_length=self._memory.chunk_length,
            history=self._memory.history,
            own_names={offered: own for own, offered in self._names.items()},
            made_for=_needs(inputs, self._names) if any_resolution == _WARN and not _resizes(config) else {},
        )
        log.info("loaded %s, a LeRobot policy of type %s, on %s", found.folder, config.type, self.device)

    def _say_what_is_trusted(self, found: Checkpoint) -> None:
        asked = "; ".join(str(demand) for demand in found.trusted[:_DEMANDS_SHOWN])
        more = len(found.trusted) - _DEMANDS_SHOWN
        self.warn(
            f"{Hint('policy_arg', 'trust', True)}: the checkpoint {str(found.folder)!r} is trusted like your own code. "
            f"What would be refused otherwise: {asked or 'nothing that can be seen in its files'}"
            f"{f'; and {more} more' if more > 0 else ''}."
        )

    def warm_up(self) -> None:
        """Makes a forward pass, where none was made: who has been tried is warm, unless its mode wants more."""
        if self.deterministic or not self._is_warm:
            super().warm_up()

    def spec_for(self, benchmark: str) -> PolicySpec:
        environment = self._environments.get(benchmark)
        return self.spec if environment is None else environment.spec(self.spec, self._names)

    def group(self, observation: Observation) -> str | None:
        return str(observation.task) if self._by_sentence else None

    def forward(self, batch: Batch) -> Any:
        with self._guard():  # a part of a network, or of a processor, may be loaded when it is first called
            try:
                actions = self._memory.actions(partial(self._shown, batch), batch, self._rng)
            except Unsplittable:
                why = "this policy draws its random numbers for the batch as a whole"
                raise TooManyRows(1, why) from None
            actions = self._postprocessed(actions.float())
        environment = self._environment(batch)
        return actions if environment is None else environment.played(actions)

    def _environment(self, batch: Batch) -> XvlaOnLibero | None:
        # What such a benchmark's rows have to show no others have, so they never share a batch: one speaks for all.
        return self._environments.get(batch.tasks[0].benchmark)

    def _shown(self, batch: Batch) -> list[dict[str, Any]]:
        return [self._in_dtype(self._pre(frame)) for frame in self._frames(batch)]

    def _made_up(self, number: int) -> dict[str, Any]:
        """Returns an observation of anything, processed: always the same one for a number."""
        generator = torch.Generator().manual_seed(number)
        looks = {
            own: torch.rand(zeros.shape, generator=generator).to(self.device) for own, zeros in self._zeros().items()
        }
        return self._in_dtype(self._pre({**looks, "task": [SENTENCES[0]]}))

    def _zeros(self) -> dict[str, Any]:
        """Returns an observation of nothing, of one row."""
        shown = [own for own in self._inputs if own in self._names or (own in self._empty and not self._masks_cameras)]
        return {own: torch.zeros((1, *self._inputs[own].shape), device=self.device) for own in shown}

    def _frames(self, batch: Batch) -> Iterator[dict[str, Any]]:
        """Returns the observations as LeRobot's evaluation would show them, one step after the other, oldest first."""
        history, environment = self._memory.history, self._environment(batch)
        for step in range(history):
            tensors = {name: tensor if history == 1 else tensor[:, step] for name, tensor in batch.items()}
            frame = self._plain(tensors) if environment is None else self._through(environment, tensors, batch)
            if not self._masks_cameras:
                for own in self._empty:
                    frame[own] = torch.zeros((len(batch), *self._inputs[own].shape), device=batch.device)
            # str(): a plain sentence, whatever a tokenizer may do with types that it does not know.
            yield {**frame, "task": [str(task) for task in batch.tasks]}

    def _plain(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        return {own: _as_lerobot(tensors[offered], self._inputs[own]) for own, offered in self._names.items()}

    def _through(self, environment: XvlaOnLibero, tensors: Mapping[str, Any], batch: Batch) -> dict[str, Any]:
        """Sends them through LeRobot's environment processor, which knows cameras by the benchmark's names."""
        cameras = {own: offered for own, offered in self._names.items() if _is_image(self._inputs[own])}
        images = {offered: _as_lerobot(tensors[offered], self._inputs[own]) for own, offered in cameras.items()}
        shown = environment.shown(images, tensors, [str(task) for task in batch.tasks])
        rest = {name: value for name, value in shown.items() if name not in images}
        return {**rest, **{own: shown[offered] for own, offered in cameras.items()}}

    def _in_dtype(self, frame: Mapping[str, Any]) -> dict[str, Any]:
        if not self._casts:
            return dict(frame)
        return {
            name: value.to(self.dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for name, value in frame.items()
        }

    def _postprocessed(self, actions: Any) -> Any:
        """Actions in the benchmark's units. LeRobot's evaluation gives post-processors one action per row."""
        rows, length, _ = actions.shape
        if self._post_by_element:
            processed = self._post(actions.flatten(0, 1))
            return processed.view(rows, length, processed.shape[-1])
        if self._post_by_step:
            try:
                return torch.stack([self._post(actions[:, step]) for step in range(length)], dim=1)
            except NotImplementedError:  # GR00T's relative actions: what each is relative to depends on its place
                self._post_by_step = False
        return self._post(actions)


def _listed(empty: Sequence[str]) -> Sequence[str]:
    return [empty] if isinstance(empty, str) else list(empty)


def _inner(module: Any) -> Any:
    """Returns the policy inside a PEFT adapter, or the policy itself."""
    return module.get_base_model() if hasattr(module, "get_base_model") else module


def _own_name(name: str, inputs: Mapping[str, Any]) -> str:
    """Returns the policy's full name of an observation that a user named in full or in short."""
    for candidate in (name, *(f"{prefix}{name}" for prefix in _PREFIXES)):
        if candidate in inputs:
            return candidate
    raise UsageError(f"unknown observation of this LeRobot policy: {name!r}. It looks at: {', '.join(inputs)}.")


def _offered_names(inputs: Mapping[str, Any], rename: Mapping[str, str], empty: set[str]) -> dict[str, str]:
    """Returns the policy's names of what it looks at, and the benchmark's."""
    if not isinstance(rename, Mapping) or not all(isinstance(v, str) for v in rename.values()):
        raise UsageError(f"rename must map the policy's names to the benchmark's, not {rename!r}.")
    names = {own: own for own in inputs if own not in empty and not own.startswith(_EMPTY_CAMERA)}
    for given, offered in rename.items():
        own = _own_name(given, inputs)
        if own in empty:
            raise UsageError(f"{given!r} is both renamed and said to be empty.")
        names[own] = _MIRRORED.get(offered, offered)
    return names


def _resizes(config: Any) -> bool:
    """Returns whether a family brings images to a size of its own: SmolVLA and X-VLA, the pi family, Diffusion."""
    return any(getattr(config, name, None) for name in _RESIZING)


def _needs(
    inputs: Mapping[str, Any], names: Mapping[str, str], *, any_resolution: bool = False
) -> dict[str, TensorSpec]:
    needs: dict[str, TensorSpec] = {}
    for own, offered in names.items():
        shape = tuple(inputs[own].shape)
        if _is_image(inputs[own]):
            channels, height, width = shape
            size = (-1, -1) if any_resolution else (height, width)
            need = TensorSpec("uint8", (*size, channels))
        else:
            need = TensorSpec(None, shape)  # of any type: states become float32, as LeRobot does it
        if needs.setdefault(offered, need) != need:
            raise UsageError(f"two observations of the policy are both {offered!r}, but they differ in shape.")
    return needs


def _is_image(feature: Any) -> bool:
    return str(getattr(feature.type, "value", feature.type)) == "VISUAL"


def _action_dim(config: Any) -> int:
    feature = config.action_feature or (config.output_features or {}).get(ACTION)
    if feature is None:
        raise UsageError(f"the checkpoint's configuration ({config.type}) has no action among its outputs.")
    return int(feature.shape[0])


def _as_lerobot(tensor: Any, feature: Any) -> Any:
    """Makes an observation what LeRobot's evaluation gives the pre-processor: images channel first, from 0 to 1."""
    if _is_image(feature):
        return tensor.movedim(-1, -3).contiguous().to(torch.float32) / 255
    return tensor.to(torch.float32, copy=True)  # a policy may write on it


def _processors(found: Any, config: Any, device: Any) -> tuple[Any, Any]:
    from lerobot.policies.factory import make_pre_post_processors

    require_steps(found)
    # Where it was trained is not where it runs, and names are mapped before: what is left is the policy's own.
    overrides: dict[str, Any] = {}
    for step, settings in processor_steps(found, PROCESSORS[0]).items():
        replaced = {"device": str(device), "rename_map": {}}
        overrides[step] = {name: value for name, value in replaced.items() if name in settings}
    try:
        pre, post = make_pre_post_processors(
            policy_cfg=config,
            pretrained_path=str(found.folder),
            preprocessor_overrides={step: settings for step, settings in overrides.items() if settings},
        )
    except Exception as error:  # a step may need a package, a tokenizer from the hub, or a newer LeRobot
        raise UsageError(
            f"the processors of {str(found.folder)!r} cannot be made: {type(error).__name__}: {str(error)[:400]}"
        ) from error
    return pre, post
