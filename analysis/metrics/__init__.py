"""Metrics of evaluated models: one value and one weight per problem.

Knows runs, programs and verdicts; knows no interval, no comparison of groups and no report.
"""

from analysis.metrics.definitions import DISTINCT, TITLES, Metric, reported_metrics

__all__ = ["DISTINCT", "TITLES", "Metric", "reported_metrics"]
