"""How a run is spread: in one process, or over the ranks of torchrun."""
