"""Plays PushT: pushes the T in straight lines, each time the one that brings it nearest to its target for its time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from sparring.policy_server.policies._pusht.disc import STEP, Disc
from sparring.policy_server.policies._pusht.tee import (
    OUTLINE,
    RADIUS,
    distance_to_goal,
    nearest,
    placed,
    pose_of,
    pushed,
    turned,
)
from sparring.policy_server.policies.base import Array

_GAP: Final = 4.0
"""Between disc and T where a push begins."""
_CLEAR: Final = 2.0
"""Between disc and T on the way there, at least."""
_CORNERS: Final = RADIUS + 9.0
"""How far from the T's corners the way goes around them."""
_EVERY: Final = 5.0
"""Between points of the outline that are tried."""
_ANGLES: Final = np.radians([-50.0, -25.0, 0.0, 25.0, 50.0])
"""Ways to push, from straight in."""
_STRIDE: Final = 1.0
_LONGEST: Final = 130
"""Strides of a push."""
_LEAST, _MOST = RADIUS + 8.0, 512.0 - RADIUS - 8.0
"""Where the middle of the disc may be, between the walls."""
_FARTHEST: Final = 2048.0
_NO_WAY: Final = 2000.0
"""What counts as the length of a way that leads through the T."""
_FAST, _SLOW = 55.0, 30.0
"""How far it goes in a step: around the T, and when it pushes."""
_FIXED_COST: Final = 3.0
"""Steps that any push takes, to stop before it and after it."""


class PushtPlayer:
    """One episode."""

    def __init__(self) -> None:
        self._disc = Disc()
        self._ways: list[_Way] = []

    def act(self, disc: Array, keypoints: Array) -> Array:
        """Returns where the disc shall go now.

        Args:
            disc: Its middle.
            keypoints: The T's corners, (8, 2).

        Raises:
            ValueError: If they are nowhere near the table: ways are planned step by step.
        """
        seen = np.concatenate([disc.ravel(), keypoints.ravel()])
        if not (np.abs(seen) <= _FARTHEST).all():
            raise ValueError(
                f"the disc or the T is not on the table of PushT, 0 to 512, but at {seen.round(1).tolist()}"
            )
        self._disc.seen_at(disc)
        while self._ways and self._ways[0].is_over(disc):
            self._ways.pop(0)
        if not self._ways:
            self._ways = _plan(disc, pose_of(keypoints))
        return self._disc.toward(*self._ways[0].in_two_steps(disc))


class _Way:
    """A line of straight pieces that the disc follows, to stop at its end."""

    def __init__(self, points: Sequence[Array], speed: float) -> None:
        pieces = [
            start + np.linspace(0.0, 1.0, max(2, round(float(np.linalg.norm(end - start)))))[:, None] * (end - start)
            for start, end in pairwise(points)
        ]
        self._points = np.concatenate(pieces)
        self._speed = speed
        self._reached = 0

    def is_over(self, disc: Array) -> bool:
        return self._reached >= len(self._points) - 2 and bool(np.linalg.norm(disc - self._points[-1]) < 1.0)

    def in_two_steps(self, disc: Array) -> tuple[Array, Array]:
        """Returns where the disc shall be in two steps, and its speed there; points are about a pixel apart."""
        ahead = self._points[self._reached : self._reached + round(2 * self._speed)]
        self._reached += int(np.linalg.norm(ahead - disc, axis=1).argmin())
        goal = self._reached + round(2 * self._speed)
        if goal >= len(self._points) - 1:
            return self._points[-1], np.zeros(2)
        direction = self._points[goal + 1] - self._points[goal]
        length = max(float(np.linalg.norm(direction)), 1e-9)
        return self._points[goal], direction / length * self._speed / STEP


def _plan(disc: Array, pose: Array) -> list[_Way]:
    """Returns the way to the beginning of a push, and the push."""
    points, outward = _places()
    own = np.tile(points + outward * (RADIUS + _GAP), (len(_ANGLES), 1))
    inward = np.concatenate([-turned(angle, outward) for angle in _ANGLES])
    begin = placed(pose, own)
    along = turned(pose[2], inward)
    usable = ((begin > _LEAST) & (begin < _MOST)).all(axis=1) & (nearest(own)[2] > RADIUS + _CLEAR)
    begin, along = begin[usable], along[usable]
    free = _clear_of(disc, pose)
    lengths = _lengths_of_ways(free, begin, pose)
    if (lengths < _NO_WAY).any():  # who goes through the T pushes it, mostly into a corner that it never leaves
        begin, along, lengths = (found[lengths < _NO_WAY] for found in (begin, along, lengths))
    poses = np.tile(pose, (len(begin), 1))
    now = float(distance_to_goal(pose))
    best, row, length = -np.inf, 0, 1.0
    for stride in range(1, _LONGEST + 1):
        ends = begin + along * (stride * _STRIDE)
        poses = pushed(poses, ends)
        there = ((ends > _LEAST) & (ends < _MOST)).all(axis=1)
        took = _FIXED_COST + lengths / _FAST + stride * _STRIDE / _SLOW
        gain = np.where(there, (now - distance_to_goal(poses)) / took, -np.inf)
        if gain.max() > best:
            best, row, length = float(gain.max()), int(gain.argmax()), stride * _STRIDE
    way = [disc, free, *_way_around(free, begin[row], pose)]
    return [_Way(way, _FAST), _Way([begin[row], begin[row] + along[row] * length], _SLOW)]


def _clear_of(disc: Array, pose: Array) -> Array:
    """Returns where the disc is when it has gone away from the T a little, if it is beside it."""
    for _ in range(6):
        _, out, distance = nearest(turned(-pose[2], disc - pose[:2])[None])
        lacking = RADIUS + _CLEAR + 1.0 - distance[0]
        if lacking <= 0:
            break
        disc = disc + turned(pose[2], out[0]) * lacking
    return disc


def _places() -> tuple[Array, Array]:
    """Returns points of the outline, in the T's frame, and the way out at each."""
    points, outward = [], []
    for start, end in zip(OUTLINE, np.roll(OUTLINE, -1, axis=0), strict=True):
        length = float(np.linalg.norm(end - start))
        shares = (np.arange(round(length / _EVERY)) + 0.5) * _EVERY / length
        points.append(start + shares[:, None] * (end - start))
        normal = np.array([end[1] - start[1], start[0] - end[0]]) / length
        outward.append(np.tile(normal, (len(shares), 1)))
    return np.concatenate(points), np.concatenate(outward)


def _corners(pose: Array) -> Array:
    """Returns points around the T that ways go by, where there is room for the disc."""
    bars = np.array([(-60, 0), (60, 0), (60, 30), (-60, 30), (15, 120), (-15, 120)], np.float64)
    outward = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1), (1, 1), (-1, 1)]) / np.sqrt(2)
    around = placed(pose, bars + outward * _CORNERS)
    inside = ((around > _LEAST) & (around < _MOST)).all(axis=1)
    return np.asarray(around[inside])


def _is_free(start: Array, ends: Array, pose: Array) -> Array:
    """Returns to which ends a disc can go straight."""
    shares = np.linspace(0.0, 1.0, 40)
    points = start + shares[None, :, None] * (ends[:, None, :] - start)
    own = turned(-pose[2], points - pose[:2])
    distances = nearest(own.reshape(-1, 2))[2].reshape(len(ends), -1)
    return np.asarray((distances > RADIUS + _CLEAR - 0.5).all(axis=1))


def _lengths_of_ways(disc: Array, ends: Array, pose: Array) -> Array:
    """Returns how far it is to each end, around the T."""
    corners = _corners(pose)
    reach = _distances(disc, corners, pose)
    best = np.where(_is_free(disc, ends, pose), np.linalg.norm(ends - disc, axis=1), np.inf)
    for corner, length in zip(corners, reach, strict=True):
        through = np.where(_is_free(corner, ends, pose), np.linalg.norm(ends - corner, axis=1), np.inf)
        best = np.minimum(best, length + through)
    return np.where(np.isfinite(best), best, _NO_WAY)


def _distances(disc: Array, corners: Array, pose: Array) -> Array:
    """Returns how far it is to each of the corners."""
    return _shortest(disc, corners, pose)[0]


def _shortest(disc: Array, corners: Array, pose: Array) -> tuple[Array, dict[int, int]]:
    """Returns how far it is to each of the corners, and by which corner the way there comes."""
    reach = np.full(len(corners), np.inf)
    before: dict[int, int] = {}
    heap: list[tuple[float, int, int]] = [
        (float(np.linalg.norm(corner - disc)), number, -1)
        for number, (corner, free) in enumerate(zip(corners, _is_free(disc, corners, pose), strict=True))
        if free
    ]
    heapq.heapify(heap)
    while heap:
        length, number, by = heapq.heappop(heap)
        if length >= reach[number]:
            continue
        reach[number], before[number] = length, by
        for other, free in enumerate(_is_free(corners[number], corners, pose)):
            if free and not np.isfinite(reach[other]):
                heapq.heappush(heap, (length + float(np.linalg.norm(corners[other] - corners[number])), other, number))
    return reach, before


def _way_around(disc: Array, end: Array, pose: Array) -> list[Array]:
    """Returns points on the way from the disc to an end, around the T."""
    if _is_free(disc, end[None], pose)[0]:
        return [end]
    corners = _corners(pose)
    reach, before = _shortest(disc, corners, pose)
    best, last = np.inf, -1
    for number, corner in enumerate(corners):
        if np.isfinite(reach[number]) and _is_free(corner, end[None], pose)[0]:
            length = reach[number] + float(np.linalg.norm(end - corner))
            if length < best:
                best, last = length, number
    way = [end]
    while last >= 0:
        way.insert(0, corners[last])
        last = before[last]
    return way
