"""Draws curves of success, with their intervals, as an SVG file, with nothing but the standard library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 760, 400, 56, 40, 230, 48
_COLOURS = (
    "#4269d0",
    "#efb118",
    "#ff725c",
    "#6cc5b0",
    "#3ca951",
    "#ff8ab7",
    "#a463f2",
    "#97bbf5",
    "#9c6b4e",
    "#9498a0",
)
LOW, HIGH = " low", " high"
"""How the columns with the ends of a rate's interval are called, after the rate's own name."""
_BESIDE = 2.5
"""Pixels between the intervals of two curves at the same step."""


def draw_curves(curve: Sequence[dict[str, float]], path: Path, *, title: str) -> None:
    """One line per rate in a table, from 0 to 1, with a bar from the low to the high end of its interval at each step.

    Columns are `step`, and of each rate its name, and its name with ` low` and with ` high`.
    """
    names = [name for name in curve[0] if name != "step" and not name.endswith((LOW, HIGH))]
    last = max(curve[-1]["step"], 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="24" font-size="15">{escape(title)}</text>',
    ]
    for percent in range(0, 101, 20):
        y = _y(percent / 100)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>')
    for row in curve:
        x = _x(row["step"], last)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{row["step"]:g}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    axis = "training steps; bars: 95 % intervals"
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle">{axis}</text>')
    for number, name in enumerate(names):
        whole = name == "overall"
        colour, width = ("black", 3) if whole else (_COLOURS[number % len(_COLOURS)], 1.5)
        points = " ".join(f"{_x(row['step'], last):.1f},{_y(row[name]):.1f}" for row in curve)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        aside = _BESIDE * (number - (len(names) - 1) / 2)
        for row in curve:
            x, low, high = _x(row["step"], last) + aside, _y(row[name + LOW]), _y(row[name + HIGH])
            parts.append(
                f'<line class="interval" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{colour}" '
                f'stroke-width="{width}" opacity="0.6"/>'
            )
        y = _TOP + 16 * number + 8
        parts.append(
            f'<line x1="{_WIDTH - _RIGHT + 14}" x2="{_WIDTH - _RIGHT + 34}" y1="{y}" y2="{y}" stroke="{colour}" '
            f'stroke-width="{width}"/>'
        )
        parts.append(f'<text x="{_WIDTH - _RIGHT + 40}" y="{y + 4}">{escape(name)}</text>')
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")


def _x(step: float, last: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * step / last


def _y(rate: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1.0 - rate)
