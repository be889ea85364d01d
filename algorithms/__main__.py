"""`python -m algorithms` lists all algorithms: name, paper, family, needs, data, options."""

from __future__ import annotations

import json
import re

from rich.console import Console
from rich.table import Table

import algorithms
from algorithms.base import Algorithm, Needs

HEAD = ("core", "name")  # keys of every file that are no options


def main() -> None:
    Console(width=None if Console().is_terminal else 160).print(table())


def table() -> Table:
    """One row for each algorithm, sorted by family."""
    listing = Table(show_lines=True)
    for head in ("name", "paper", "family", "needs", "learns from", "options"):
        listing.add_column(head, no_wrap=head in ("name", "paper", "family"))
    for name in sorted(algorithms.names(), key=lambda name: (_family(name), name)):
        algorithm = algorithms.make(name)
        options = {k: v for k, v in algorithms.defaults(name).items() if k not in HEAD}
        listing.add_row(
            name,
            paper(name),
            _family(name),
            needs(algorithm.needs),
            data(algorithm),
            " ".join(f"{key}={_yaml(value)}" for key, value in options.items()),
        )
    return listing


def paper(name: str) -> str:
    """The first arXiv number in the file's opening comment; – if it cites none."""
    text = (algorithms.CONF / f"{name}.yaml").read_text()
    comment = text[: text.index(f"name: {name}")]
    number = re.search(r"\d{4}\.\d{5}", comment)
    return number.group() if number else "–"


def needs(n: Needs) -> str:
    """What the trainer provides, in words."""
    words = {
        "groups": n.groups,
        "behaviour log-probs": n.behaviour,
        "reference": n.reference,
        f"critic ({n.critic})": n.critic != "none",
        "moving average of the weights": n.average is not None,
        "a forward pass before the update": n.policy,
        "a forward pass before the batch": n.start,
        "the policy of the batch before": n.precedent is not None,
        f"soft value of the prompt ({n.initial_value})": n.initial_value != "none",
        "gradient of the entropy": n.entropy_graph,
        f"train.{n.share}": n.share != "",
        "another reference later on": n.reincarnation is not None,
    }
    return ", ".join(word for word, needed in words.items() if needed) or "nothing"


def data(algorithm: Algorithm) -> str:
    """The responses that it learns from, in words."""
    n = algorithm.needs
    age = "of any age"
    if n.max_lag is not None:
        age = "fresh" if n.max_lag == 0 else f"{n.max_lag} steps old at most"
    return f"its own, {age}" + (", and the data set's programs" if n.off_policy else "")


def _family(name: str) -> str:
    """The module of its core."""
    return algorithms.load(name).__module__.rpartition(".")[-1]


def _yaml(value: object) -> str:
    return json.dumps(value).strip('"')


if __name__ == "__main__":
    main()
