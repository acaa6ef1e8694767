"""Gives each row of a batch its own random numbers, in code that knows only torch's global generator.

LeRobot's policies sample from torch's global generator, so what a row draws would depend on who draws before it. Here a
row draws what it would draw alone, from a generator seeded with its episode's seed, whoever its neighbours are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode


class Unsplittable(Exception):
    """Numbers were drawn for the batch as a whole, in a way that cannot be taken apart into rows."""


def _size(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Sequence[int]:
    if "size" in keywords:
        return tuple(keywords["size"])
    if len(arguments) == 1 and not isinstance(arguments[0], int):
        return tuple(arguments[0])
    return tuple(arguments)


def _plain(draw: Any) -> Callable[..., Any]:
    """Makes the row-by-row form of randn or rand, by the size that is asked for."""

    def drawn(rng: _RowRng, *arguments: Any, **keywords: Any) -> Any:
        size = _size(arguments, keywords)
        options = {k: v for k, v in keywords.items() if k not in ("size", "device", "generator", "pin_memory")}
        parts = rng.parts(size)
        rows = [draw(part, generator=generator, **options) for part, generator in parts]
        return torch.cat(rows).to(keywords.get("device"))

    return drawn


def _like(draw: Any) -> Callable[..., Any]:
    """Makes the row-by-row form of randn_like or rand_like."""

    def drawn(rng: _RowRng, tensor: Any, **keywords: Any) -> Any:
        dtype = keywords.get("dtype") or tensor.dtype
        rows = [draw(part, generator=generator, dtype=dtype) for part, generator in rng.parts(tensor.shape)]
        return torch.cat(rows).to(keywords.get("device") or tensor.device)

    return drawn


def _randint(rng: _RowRng, *arguments: Any, **keywords: Any) -> Any:
    numbers = [a for a in arguments if isinstance(a, int)]
    low = keywords.get("low", numbers[0] if len(numbers) == 2 else 0)
    high = keywords["high"] if "high" in keywords else numbers[-1]
    size = keywords.get("size") or next(a for a in arguments if not isinstance(a, int))
    options = {"dtype": keywords["dtype"]} if keywords.get("dtype") else {}
    parts = rng.parts(tuple(size))
    rows = [torch.randint(low, high, part, generator=generator, **options) for part, generator in parts]
    return torch.cat(rows).to(keywords.get("device"))


def _normal(rng: _RowRng, mean: Any, std: Any = 1.0, size: Any = None, **keywords: Any) -> Any:
    if size is not None:
        options = {"dtype": keywords["dtype"]} if keywords.get("dtype") else {}
        parts = rng.parts(tuple(size))
        rows = [torch.normal(mean, std, part, generator=generator, **options) for part, generator in parts]
        return torch.cat(rows).to(keywords.get("device"))
    tensor = mean if isinstance(mean, torch.Tensor) else std
    means, stds = (rng.split(value) if isinstance(value, torch.Tensor) else None for value in (mean, std))
    rows = [
        torch.normal(means[i] if means else mean, stds[i] if stds else std, generator=generator)
        for i, generator in enumerate(rng.generators)
    ]
    return torch.cat(rows).to(tensor.device)


def _multinomial(rng: _RowRng, weights: Any, num_samples: int, replacement: bool = False, **keywords: Any) -> Any:
    if weights.ndim != 2:
        raise Unsplittable
    blocks = zip(rng.split(weights), rng.generators, strict=True)
    rows = [torch.multinomial(block, num_samples, replacement, generator=generator) for block, generator in blocks]
    return torch.cat(rows).to(weights.device)


def _in_place(method: str) -> Callable[..., Any]:
    """Makes the row-by-row form of normal_, uniform_ or exponential_: each block of rows is filled by itself."""

    def filled(rng: _RowRng, tensor: Any, *arguments: Any, **keywords: Any) -> Any:
        keywords.pop("generator", None)
        for (part, generator), rows in zip(rng.parts(tensor.shape), rng.split(tensor, move=False), strict=True):
            block = torch.empty(part, dtype=tensor.dtype)
            rows.copy_(getattr(block, method)(*arguments, generator=generator, **keywords))
        return tensor

    return filled


_SPLIT: Final[dict[Any, Callable[..., Any]]] = {
    torch.randn: _plain(torch.randn),
    torch.rand: _plain(torch.rand),
    torch.randn_like: _like(torch.randn),
    torch.rand_like: _like(torch.rand),
    torch.randint: _randint,
    torch.normal: _normal,
    torch.multinomial: _multinomial,
    torch.Tensor.multinomial: _multinomial,
    torch.Tensor.normal_: _in_place("normal_"),
    torch.Tensor.uniform_: _in_place("uniform_"),
    torch.Tensor.exponential_: _in_place("exponential_"),
}


class _RowRng(TorchFunctionMode):
    """While it is entered, draws without a generator are made row by row, each from the row's own."""

    def __init__(self, generators: Sequence[Any]) -> None:
        super().__init__()
        self.generators = generators

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        split = _SPLIT.get(function)
        if split is None or kwargs.get("generator") is not None:
            return function(*args, **kwargs)
        return split(self, *args, **kwargs)

    def parts(self, size: Sequence[int]) -> list[tuple[tuple[int, ...], Any]]:
        """Returns the size of each row's share, and its generator. Rows are the first axis, or folded into it."""
        count = len(self.generators)
        if not size or size[0] % count:
            raise Unsplittable
        return [((size[0] // count, *size[1:]), generator) for generator in self.generators]

    def split(self, tensor: Any, *, move: bool = True) -> Sequence[Any]:
        """Returns a tensor's share of each row."""
        if tensor.ndim == 0 or len(tensor) % len(self.generators):
            raise Unsplittable
        shares: Sequence[Any] = (tensor.cpu() if move else tensor).chunk(len(self.generators))
        return shares


class EpisodeRng:
    """Runs a function that may draw from torch's global generators, so that each row draws from its own.

    Whether it draws at all is found out, not asked: a policy that does not pays nothing for those that do. One that
    draws in a way that cannot be taken apart is run row by row.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._draws = False
        self.row_by_row = False

    def run(self, function: Callable[[], Any], generators: Sequence[Any]) -> Any:
        """Runs a function and returns its result; the generators are moved on by what it drew.

        Raises:
            Unsplittable: If it has to be run row by row, from now on (`row_by_row`).
        """
        if len(generators) == 1 and self._device.type == "cpu":
            # Alone, a row has torch's own generator: exactly what LeRobot does with a seeded process.
            with _borrowed(generators[0]):
                return function()
        if len(generators) == 1 and self.row_by_row:
            with _borrowed(generators[0]), torch.random.fork_rng(device_type=self._device.type):
                # The device has a generator of its own; what it draws is decided by a number from the episode's.
                torch.get_device_module(self._device).manual_seed(int(torch.randint(2**62, (1,))))
                return function()
        before = self._states()
        if not self._draws:
            result = function()
            if not self._put_back(before):
                return result
            self._draws = True
        at_start = [generator.get_state() for generator in generators]
        try:
            with _RowRng(generators):
                result = function()
            if not self._put_back(before):
                return result
        except Unsplittable:
            self._put_back(before)
        for generator, state in zip(generators, at_start, strict=True):
            generator.set_state(state)
        self.row_by_row = True
        raise Unsplittable

    def _states(self) -> list[Any]:
        states = [torch.get_rng_state()]
        if self._device.type != "cpu":
            states.append(torch.get_device_module(self._device).get_rng_state())
        return states

    def _put_back(self, before: Sequence[Any]) -> bool:
        """Puts the global generators, which training needs itself, where they were; returns whether they had moved."""
        if all(torch.equal(now, then) for now, then in zip(self._states(), before, strict=True)):
            return False
        torch.set_rng_state(before[0])
        if self._device.type != "cpu":
            torch.get_device_module(self._device).set_rng_state(before[1])
        return True


@contextmanager
def _borrowed(generator: Any) -> Iterator[None]:
    """Lends torch's global generator on the CPU the state of an episode's, and takes it back."""
    before = torch.get_rng_state()
    torch.set_rng_state(generator.get_state())
    try:
        yield
        generator.set_state(torch.get_rng_state())
    finally:
        torch.set_rng_state(before)
