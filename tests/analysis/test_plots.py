import numpy as np
import pandas as pd

from analysis.metrics import DISTINCT
from analysis.plots import kl_curves, plt, styles


def evaluations(kl):
    """Two evaluations of one group, at these KLs."""
    table = pd.DataFrame({"label": "spo", "step": [0, 20], "kl_ref": kl})
    for metric in ("pass@1", DISTINCT):
        table[[metric, f"{metric}_low", f"{metric}_high"]] = [[0.2, 0.1, 0.3], [0.6, 0.5, 0.7]]
    return table


def test_a_line_runs_from_the_base_over_the_kl():
    figure = kl_curves(evaluations([0.0, 6.0]), styles(["spo"]))
    for axes in figure.axes:
        (line,) = axes.get_lines()
        assert line.get_xydata().tolist() == [[0.0, 0.2], [6.0, 0.6]]
    plt.close(figure)


def test_without_a_kl_there_is_no_figure():
    assert kl_curves(evaluations([0.0, np.nan]), styles(["spo"])) is None
