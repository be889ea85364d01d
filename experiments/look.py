"""How figures look that are drawn with matplotlib."""

COLOUR, BASE_COLOUR = "#0072B2", "#444444"
LOOK = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "figure.dpi": 150,
    "svg.hashsalt": "spo-bench",  # the same data give the same bytes
}
