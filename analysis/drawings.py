"""The figures as files, .png and .svg, for papers; of several experiments on all cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis.cores import cores, pool


@dataclass(frozen=True)
class Drawing:
    """The tables that an experiment's figures are made of; `labels` in the order of their styles.

    `window` is the number of steps over which the rewards were smoothed.
    """

    place: str  # its folder's name
    labels: tuple[str, ...]
    rewards: pd.DataFrame
    window: int
    curve: pd.DataFrame
    at_k: pd.DataFrame
    results: pd.DataFrame

    def draw(self, figures: Path) -> None:
        """Write the files; a figure with nothing to show is left out. Raises OSError."""
        from analysis import curves, plots

        folder = figures / self.place
        folder.mkdir(parents=True, exist_ok=True)
        style = plots.styles(self.labels)
        drawn = {
            "pass_at_k": plots.pass_at_k_curves(self.at_k, style),
            "diversity": plots.diversity_dots(self.results, style),
            "kl": plots.kl_curves(self.curve, style),
        }
        for x in curves.X_AXES:
            ways = plots.learning_curves(self.rewards, self.curve, x, self.window, style)
            drawn[f"curves_{x}"] = ways
        for name, figure in drawn.items():
            if figure is not None:
                plots.save(figure, folder / name)


@contextmanager
def drawn(drawings: Sequence[Drawing], figures: Path) -> Iterator[None]:
    """Draw them below `figures` while the block runs; all are there when it has ended."""
    if cores() == 1 or len(drawings) < 2:
        for drawing in drawings:
            drawing.draw(figures)
        yield
        return
    with pool() as processes:
        waiting = [processes.submit(drawing.draw, figures) for drawing in drawings]
        yield
        for one in waiting:
            one.result()
