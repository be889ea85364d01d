"""The HTML page: its figures, packed samples, template, style and script.

Knows how to show sections and experiments; computes no statistic.
"""
