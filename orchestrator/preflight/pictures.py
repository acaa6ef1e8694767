"""How alike two pictures are, as they are and turned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from sparring.protos.tensor import Array

SIDE: Final = 32
"""Pixels that pictures are made small to before they are compared: what moves a little still is where it was."""

AS_IT_IS: Final = "as it is"
TURNS: Final[Mapping[str, Callable[[Array], Array]]] = {
    AS_IT_IS: lambda image: image,
    "upside down": lambda image: image[::-1],
    "mirrored": lambda image: image[:, ::-1],
    "turned by 180 degrees": lambda image: image[::-1, ::-1],
    "turned by 90 degrees": lambda image: np.rot90(image),
    "turned by 270 degrees": lambda image: np.rot90(image, 3),
    "with rows and columns exchanged": lambda image: np.swapaxes(image, 0, 1),
    "with rows and columns exchanged, and turned by 180 degrees": lambda image: np.swapaxes(image, 0, 1)[::-1, ::-1],
}
"""Every way in which a square can lie; each of them undone by itself or by the other quarter turn."""
UNDONE_BY: Final = {"turned by 90 degrees": "turned by 270 degrees", "turned by 270 degrees": "turned by 90 degrees"}


def small(image: Array, side: int = SIDE) -> Array:
    """Returns an image (height, width, channels) as a small square of floats; bytes from 0 to 1, floats as they are."""
    height, width = image.shape[:2]
    rows, columns = (np.arange(min(side, size)) * size // min(side, size) for size in (height, width))
    sums = np.add.reduceat(np.add.reduceat(image.astype(np.float64), rows, axis=0), columns, axis=1)
    sizes = np.diff([*rows, height])[:, None] * np.diff([*columns, width])
    picture: Array = sums / sizes[..., None] / (255.0 if image.dtype == np.uint8 else 1.0)
    return picture


def mean_picture(images: Sequence[Array], side: int = SIDE) -> Array:
    """Returns the mean of some images, made small: what differs from one to the other fades."""
    return np.mean([small(image, side) for image in images], axis=0)  # type: ignore[no-any-return]


def alike(one: Array, other: Array) -> float:
    """Returns the correlation of two pictures of one size, by their brightness: 1 for the same; 0 if one is plain."""
    left, right = (picture.mean(axis=2) - picture.mean() for picture in (one, other))
    norm = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float((left * right).sum() / norm) if norm > 1e-9 else 0.0


def by_turn(shown: Array, known: Array) -> dict[str, float]:
    """Returns how alike a picture is to another one, for every way to turn the first."""
    found = {}
    for name, turn in TURNS.items():
        turned = turn(shown)
        if turned.shape == known.shape:
            found[name] = alike(turned, known)
    return found


def resized(image: Array, height: int, width: int) -> Array:
    """Returns an image in another size, each pixel the nearest one."""
    if image.shape[:2] == (height, width):
        return image
    rows = (np.arange(height) + 0.5) * image.shape[0] / height
    columns = (np.arange(width) + 0.5) * image.shape[1] / width
    return np.ascontiguousarray(image[rows.astype(int)][:, columns.astype(int)])
