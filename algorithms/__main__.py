"""`python -m algorithms` lists all algorithms: name, paper and idea, needs.

`python -m algorithms NAME` prints the options of one with their meanings.
"""

from __future__ import annotations

import sys

import algorithms
from algorithms.base import Needs


def main(names: list[str]) -> int:
    """Print the list, or the options of each name; returns the exit status."""
    if {"-h", "--help", "help"} & {*names}:
        print((__doc__ or "").strip())
        return 0
    try:
        print("\n".join(map(description, names) if names else map(row, algorithms.names())))
    except ValueError as mistake:  # an unknown name, or one in a file of conf/algo
        print(f"error: {mistake}", file=sys.stderr)
        return 2
    return 0


def row(name: str) -> str:
    """One algorithm in two lines."""
    opening = algorithms.files(name)[-1].read_text().partition(f"name: {name}")[0]
    words = " ".join(line[2:] for line in opening.splitlines() if line.startswith("# "))
    needed = needs(algorithms.make(name).needs)
    return f"{name:<13} {words.partition('. ')[0]}\n{'':<13} needs {needed}"


def description(name: str) -> str:
    """The files of conf/algo that give its options, bases first."""
    algorithms.load(name)
    texts = [f"# conf/algo/{file.name}\n{file.read_text()}" for file in algorithms.files(name)]
    return "\n".join(texts)


def needs(n: Needs) -> str:
    """The inputs that the trainer provides, in words."""
    words = {
        "groups": n.groups,
        "behaviour log-probs": n.behaviour,
        "reference": n.reference,
        f"critic ({n.critic})": n.critic != "none",
        f"earlier weights ({', '.join(n.copies)})": n.copies,
        "a forward pass before the update": n.policy,
        f"soft value of the prompt ({n.initial_value})": n.initial_value != "none",
        f"train.{n.share}": n.share,
        "fresh responses": n.max_lag == 0,
    }
    return ", ".join(word for word, needed in words.items() if needed) or "nothing"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
