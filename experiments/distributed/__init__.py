"""How a run is spread: in one process, over the ranks of torchrun, or beside actors of Ray."""
