"""`python -m algorithms` lists all algorithms: name, paper, family, needs, data, options.

`python -m algorithms NAME` prints one, with the choices of its options and the files that say what
they mean.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from typing import Literal, NoReturn, get_args, get_origin, get_type_hints

from rich.console import Console
from rich.table import Table

import algorithms
from algorithms.base import Algorithm, Needs, Options

HEAD = ("core", "name")  # keys of every file that are no options


def main() -> None:
    if any(argument in ("-h", "--help", "help") for argument in sys.argv[1:]):
        print((__doc__ or "").strip())
        return
    if unknown := [name for name in sys.argv[1:] if name not in algorithms.names()]:
        near = difflib.get_close_matches(unknown[0], algorithms.names(), n=1, cutoff=0.75)
        suggestion = f"did you mean {near[0]!r}? " if near else ""
        names = ", ".join(algorithms.names())
        _end(f"no algorithm {unknown[0]!r}; {suggestion}choose of {names}")
    try:
        for name in sys.argv[1:]:
            print(description(name))
        if not sys.argv[1:]:
            Console(width=None if Console().is_terminal else 160).print(table())
    except ValueError as mistake:  # in a file of conf/algo
        _end(str(mistake))


def _end(mistake: str) -> NoReturn:
    print(f"error: {mistake}", file=sys.stderr)
    sys.exit(2)


def description(name: str) -> str:
    """One algorithm in lines: its class, what it needs, and its options with their choices."""
    algorithm, core = algorithms.make(name), algorithms.load(name)
    lines = [
        f"{name} (arXiv {paper(name)}): {core.__name__} in {_file(core)}, conf/algo/{name}.yaml",
        f"  needs: {needs(algorithm.needs)}",
        f"  learns from: {data(algorithm)}",
    ]
    allowed = choices(core)
    for key, value in options(name).items():
        others = [choice for choice in allowed.get(key, ()) if choice != value]
        more = f"  (or {', '.join(others)})" if others else ""
        lines.append(f"  algo.{key}={_yaml(value)}{more}")
    classes = [c for c in core.Config.__mro__ if issubclass(c, Options)]
    files = dict.fromkeys(_file(c) for c in classes)
    return "\n".join([*lines, f"The options are described in {', '.join(files)}."])


def options(name: str) -> dict[str, object]:
    """The options of an algorithm with their defaults."""
    return {key: value for key, value in algorithms.defaults(name).items() if key not in HEAD}


def choices(core: type[Algorithm]) -> dict[str, tuple[str, ...]]:
    """The allowed values of each option that is one of several words."""
    hints = get_type_hints(core.Config)
    return {key: get_args(hint) for key, hint in hints.items() if get_origin(hint) is Literal}


def table() -> Table:
    """One row for each algorithm, sorted by family."""
    listing = Table(show_lines=True)
    for head in ("name", "paper", "family", "needs", "learns from", "options"):
        listing.add_column(head, no_wrap=head in ("name", "paper", "family"))
    for name in sorted(algorithms.names(), key=lambda name: (_family(name), name)):
        algorithm = algorithms.make(name)
        listing.add_row(
            name,
            paper(name),
            _family(name),
            needs(algorithm.needs),
            data(algorithm),
            " ".join(f"{key}={_yaml(value)}" for key, value in options(name).items()),
        )
    return listing


def paper(name: str) -> str:
    """The first arXiv number in the file's opening comment; – if it cites none."""
    text = (algorithms.CONF / f"{name}.yaml").read_text()
    comment = text[: text.index(f"name: {name}")]
    number = re.search(r"\d{4}\.\d{5}", comment)
    return number.group() if number else "–"


def needs(n: Needs) -> str:
    """The inputs that the trainer provides, in words."""
    words = {
        "groups": n.groups > 0,
        "behaviour log-probs": n.behaviour != "",
        "reference": n.reference,
        f"critic ({n.critic})": n.critic != "none",
        "a forward pass before the update": n.policy,
        f"soft value of the prompt ({n.initial_value})": n.initial_value != "none",
        "gradient of the entropy": n.entropy_graph,
        f"train.{n.share}": n.share != "",
        f"earlier weights ({', '.join(n.copies)})": n.copies != (),
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


def _file(defined: type) -> str:
    """The path of the file that defines a class."""
    return defined.__module__.replace(".", "/") + ".py"


def _yaml(value: object) -> str:
    return json.dumps(value).strip('"')


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone, as in `... | head`: no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
