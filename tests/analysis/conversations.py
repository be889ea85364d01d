"""Rows of evals.parquet with conversations, as a run with `task.turns` above 1 writes them."""

from pathlib import Path

import numpy as np
import pandas as pd
import yaml

FAIL, PASS = "WRONG_ANSWER", "ACCEPTED"
SHORT = {"R": PASS, "w": FAIL, "s": "SYNTAX_ERROR", "i": "INFRA_ERROR"}


def conversation(hidden, public, programs, tokens, observations=None, **columns):
    """A row; `hidden` and `public` have a letter of SHORT for each answer: "wwR"."""
    turns = len(hidden)
    assert turns == len(public) == len(programs) == len(tokens)
    return {
        "step": 20,
        "problem": "p",
        "sample": 0,
        "verdict": SHORT[hidden[-1]],
        "passed": 8 if hidden[-1] == "R" else 3,
        "total": 8,
        "program": programs[-1],
        "tokens": sum(tokens),
        "turns": turns,
        "turn_verdicts": [SHORT[letter] for letter in hidden],
        "turn_public": [SHORT[letter] for letter in public],
        "turn_programs": list(programs),
        "turn_tokens": list(tokens),
        "observations": observations or [f"sample {i} failed" for i in range(turns - 1)],
        "observation_tokens": 10 * (turns - 1),
        **columns,
    }


def in_conversations(evals: pd.DataFrame, turns: int, mend: float, seed: int) -> pd.DataFrame:
    """Give each sample of a run that fails further answers, which are right with chance `mend`.

    An answer passes the public tests if it is right, and one in ten that is not.
    """
    random = np.random.default_rng([seed, turns])
    rows = []
    for row in evals.to_dict("records"):
        hidden = "R" if row["verdict"] == PASS else "w"
        programs, public = [row["program"]], ""
        while True:
            public += "R" if hidden[-1] == "R" or random.random() < 0.1 else "w"
            if public[-1] == "R" or len(hidden) == turns:
                break
            hidden += "R" if random.random() < mend else "w"
            programs.append(f"print({len(programs)})" if hidden[-1] == "R" else programs[-1])
        tokens = [max(1, len(program) // 2) for program in programs]
        kept = {name: row[name] for name in ("step", "problem", "sample", "entropy", "difficulty")}
        rows.append(conversation(hidden, public, programs, tokens, **kept))
    return pd.DataFrame(rows)


def add_conversations(run: Path, turns: int = 3, mend: float = 0.3) -> Path:
    """Turn the evaluations of a run folder of `make_run` into conversations."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["task"]["turns"] = turns
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    evals = pd.read_parquet(run / "evals.parquet")
    # Of step 0 every run of a seed has the same samples.
    parts = [
        in_conversations(part, turns, mend if step else 0.1, config["seed"])
        for step, part in evals.groupby("step")
    ]
    pd.concat(parts).to_parquet(run / "evals.parquet", index=False)
    return run
