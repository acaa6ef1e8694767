"""Statistics of a data set's features, as LeRobot defines them: of each episode, and of all by their counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparring.protos.tensor import Array

QUANTILES: Final = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
_LEAST_IMAGES, _MOST_IMAGES, _POWER = 100, 10_000, 0.75
_LARGE, _SIDE = 300, 150


@dataclass(frozen=True)
class FeatureStatistics:
    """Sums up one feature, by dimension; images by channel, between 0 and 1.

    Attributes:
        count: Rows, or images that were looked at.
        quantiles: By name. Of several episodes the mean of theirs, weighed by their counts: that is what LeRobot means.
    """

    min: Array
    max: Array
    mean: Array
    std: Array
    count: int
    quantiles: dict[str, Array]

    def to_json(self) -> dict[str, Any]:
        """Returns them by LeRobot's names, in plain lists."""
        arrays = {"min": self.min, "max": self.max, "mean": self.mean, "std": self.std, **self.quantiles}
        return {name: array.tolist() for name, array in arrays.items()} | {"count": [self.count]}


def of_rows(rows: Array) -> FeatureStatistics:
    """Returns the statistics of numbers: (rows,) or (rows, dimensions)."""
    rows = rows.reshape(len(rows), -1)
    ordered, wide = np.sort(rows, axis=0), rows.astype(np.float64)
    ranks = np.arange(1, len(rows) + 1)
    return FeatureStatistics(
        min=ordered[0],
        max=ordered[-1],
        mean=wide.mean(axis=0),
        std=wide.std(axis=0),
        count=len(rows),
        quantiles={
            name: ordered[np.searchsorted(ranks, part * len(rows))].astype(np.float64)
            for name, part in QUANTILES.items()
        },
    )


class ImageStatistics:
    """Counts the pixels of an episode's images; not of all images, if there are many, nor of all pixels of large ones.

    Args:
        length: How many images there will be.
    """

    def __init__(self, length: int) -> None:
        wanted = max(min(length, _LEAST_IMAGES), min(int(length**_POWER), _MOST_IMAGES))
        self._wanted = set(np.round(np.linspace(0, length - 1, wanted)).astype(int).tolist())
        self._count = wanted
        self._pixels = np.zeros((3, 256), np.int64)

    def add(self, number: int, image: Array) -> None:
        """Takes the image of a step in: uint8 (height, width, 3)."""
        if number in self._wanted:
            height, width = image.shape[:2]
            stride = 1 if max(height, width) < _LARGE else max(height, width) // _SIDE
            for channel in range(3):
                pixels = np.ascontiguousarray(image[::stride, ::stride, channel]).ravel()
                self._pixels[channel] += np.bincount(pixels, minlength=256)

    def result(self) -> FeatureStatistics:
        """Returns them, when all images were added."""
        levels, total = np.arange(256.0), self._pixels.sum(axis=1)
        mean = self._pixels @ levels / total
        variance = (self._pixels * (levels - mean[:, None]) ** 2).sum(axis=1) / total
        reached = self._pixels.cumsum(axis=1)

        def shaped(values: Any) -> Array:
            return (np.asarray(values, np.float64) / 255.0).reshape(3, 1, 1)

        return FeatureStatistics(
            min=shaped((self._pixels > 0).argmax(axis=1)),
            max=shaped(255 - (self._pixels[:, ::-1] > 0).argmax(axis=1)),
            mean=shaped(mean),
            std=shaped(np.sqrt(variance)),
            count=self._count,
            quantiles={
                name: shaped([np.searchsorted(r, part * n) for r, n in zip(reached, total, strict=True)])
                for name, part in QUANTILES.items()
            },
        )


def of_all(episodes: Sequence[FeatureStatistics]) -> FeatureStatistics:
    """Returns the statistics of all episodes together."""
    counts = np.array([one.count for one in episodes], np.float64)
    weights = (counts / counts.sum()).reshape(-1, *(1,) * episodes[0].mean.ndim)
    means = np.stack([one.mean for one in episodes])
    mean = (means * weights).sum(axis=0)
    variance = ((np.stack([one.std for one in episodes]) ** 2 + (means - mean) ** 2) * weights).sum(axis=0)
    return FeatureStatistics(
        min=np.min([one.min for one in episodes], axis=0),
        max=np.max([one.max for one in episodes], axis=0),
        mean=mean,
        std=np.sqrt(variance),
        count=int(counts.sum()),
        quantiles={
            name: (np.stack([one.quantiles[name] for one in episodes]) * weights).sum(axis=0) for name in QUANTILES
        },
    )
