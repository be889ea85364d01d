"""`python -m algorithms` lists what there is: name, paper, family, needs, data, options."""

from __future__ import annotations

import json
import re

from rich.console import Console
from rich.table import Table

import algorithms
from algorithms.base import Algorithm, Needs

HEAD = ("core", "name")  # of every file; what follows are options


def main() -> None:
    Console(width=None if Console().is_terminal else 160).print(table())


def table() -> Table:
    """A row for each name, those of a core together."""
    shown = Table(show_lines=True)
    for head in ("name", "paper", "family", "needs", "learns from", "options"):
        shown.add_column(head, no_wrap=head in ("name", "paper", "family"))
    for name in sorted(algorithms.names(), key=lambda name: (_family(name), name)):
        made = algorithms.make(name)
        options = {k: v for k, v in algorithms.defaults(name).items() if k not in HEAD}
        listed = " ".join(f"{key}={_yaml(value)}" for key, value in options.items())
        shown.add_row(name, paper(name), _family(name), needs(made.needs), data(made), listed)
    return shown


def paper(name: str) -> str:
    """The first arXiv number in the file's opening comment; – for what has no paper."""
    text = (algorithms.CONF / f"{name}.yaml").read_text()
    comment = text[: text.index(f"name: {name}")]
    found = re.search(r"\d{4}\.\d{5}", comment)
    return found.group() if found else "–"


def needs(n: Needs) -> str:
    """What the trainer provides, in words."""
    given = {
        "groups": n.groups,
        "writer's log-probs": n.behaviour,
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
    return ", ".join(word for word, wanted in given.items() if wanted) or "nothing"


def data(algorithm: Algorithm) -> str:
    """Whose responses it learns from."""
    n = algorithm.needs
    age = "of any age"
    if n.max_lag is not None:
        age = "fresh" if n.max_lag == 0 else f"{n.max_lag} steps old at most"
    return f"its own, {age}" + (", and the data set's programs" if n.off_policy else "")


def _family(name: str) -> str:
    return algorithms.defaults(name)["core"].split(".")[-2]


def _yaml(value: object) -> str:
    return json.dumps(value).strip('"')


if __name__ == "__main__":
    main()
