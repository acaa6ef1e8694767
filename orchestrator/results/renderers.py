"""Which renderers have drawn the images of a run: the pixels of two are not the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sparring.orchestrator.results.row import EpisodeRow


def renderers_of(rows: Iterable[EpisodeRow]) -> dict[str, int]:
    """Returns how many episodes each renderer has drawn for, of those that count; the first has most."""
    return dict(Counter(row.renderer for row in rows if row.renderer and row.outcome != "error").most_common())


def mixed_renderers(rows: Sequence[EpisodeRow]) -> list[str]:
    """Says in sentences where the episodes of one benchmark were drawn by different renderers."""
    told = []
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        found = renderers_of(row for row in rows if row.benchmark == benchmark)
        if len(found) > 1:
            each = "; ".join(f"{name}: {count}" for name, count in found.items())
            told.append(f"episodes of {benchmark} were drawn by different renderers, whose pixels differ: {each}.")
    return told
