"""Conversations as counts for each problem, their metrics, and tables with intervals.

A conversation is a prompt, an answer, an observation, a second answer, …. It ends when an answer
passes the public tests or after `turn_limit` answers, and its last answer is submitted. A sample of
a run without turns counts as a conversation of one answer, so that such a run can be compared.

turns.csv has the solve rate with at most t answers (`solved_in_t`: the last of these passes the
hidden tests) and, of conversations of several turns, with T the most answers:

- `n@k`, `1@k`: the chance to solve a problem with k answers in all, those of every turn counted, as
  in RLEF (2410.02089): the last answers of k/T conversations. All of them are submitted, or one of
  those that pass the public tests, if any do. `first_1@k`: one of the first answers of k
  conversations.
- `solved_in_N_tokens`: with N generated tokens: conversations one after the other, of which each
  submits its last answer
- shares of second answers: `other_form`, `other_text`: whose program is not the first one's, by
  normal form or as text; `mended_shown`: of conversations with one, that are right in the end
- shares of conversations: `mended`, `left`: with a failing first answer, that end right or failing;
  `kept`, `broken`: with a right first answer; `false_stop`: that end with an answer that passes the
  public tests and fails the hidden ones
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import comb
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.budgets import X_AXES, spend_at_step
from analysis.comparisons import difference_table, paired_differences
from analysis.groups import EvaluatedModel, Group, GroupScores
from analysis.intervals import grid_interval
from analysis.metrics import ProblemScores, problem_scores, stack_seeds
from analysis.pass_at_k import pass_at_k
from analysis.programs import normal_form
from analysis.runs import TURN_COLUMNS, Run, memoize

COLUMNS = (
    *("step", "problem", "turns", "conversations", "solved", "passed", "false_stops"),
    *("first_passed", "first_passed_right", "mended", "broken", "second", "second_solved"),
    *("other_text", "other_form", "right_tokens", "wrong_tokens"),
)
UNKNOWN = -1  # a count that was not made
FAILED_JUDGE = "INFRA_ERROR"


def has_conversations(run: Run) -> bool:
    """Whether a run was evaluated in conversations that may have several turns."""
    if run.packed:
        return run.turns is not None and bool((run.turns["turns"] > 1).any())
    return TURN_COLUMNS[0] in run.evals


def turn_limit(run: Run) -> int:
    """Return the most answers that a conversation of the run's evaluations may have.

    It is `eval.turns`, or else `task.turns`; without either, the most that one has.
    """
    if run.packed:
        return int(run.turns["turns"].max()) if run.turns is not None else 1
    if not has_conversations(run):
        return 1
    for section in ("eval", "task"):
        settings = run.config.get(section)
        if isinstance(settings, dict) and settings.get("turns"):
            return int(settings["turns"])
    return int(run.evals["turns"].max())


@memoize
def counts_at(run: Run, step: int, whole: bool = True) -> pd.DataFrame:
    """Return `count_conversations` of one evaluation; a packed run has it whole or in part."""
    if not run.packed:
        return count_conversations(run.evaluation(step), turn_limit(run), whole)
    if run.turns is None:
        return pd.DataFrame(columns=list(COLUMNS))
    return run.turns[run.turns["step"] == step]


def count_conversations(samples: pd.DataFrame, turns: int, whole: bool = True) -> pd.DataFrame:
    """Return COLUMNS of evaluation samples: a row for each step and problem.

    Samples with an answer on which the judge failed (INFRA_ERROR) are left out.

    - turns: the most answers of a conversation; conversations: their number.
    - solved: of how many the last of the first 1, 2, … `turns` answers passes the hidden tests.
    - passed: of how many the last answer passes the public tests; false_stops: those of them that
      fail the hidden tests; first_passed, first_passed_right: of how many the first answer passes
      the public tests, or both. These are UNKNOWN for single samples, and without public tests.
    - mended, broken: the first answer fails and the last one is right; the other way round.
    - second, second_solved: with a second answer, and those of them that are solved; other_text,
      other_form: its program is not the first's, as text and in normal form (a program that cannot
      be parsed is its own form).
    - right_tokens, wrong_tokens: generated tokens of each conversation, by its last answer.

    Without `whole`, other_form is UNKNOWN and the tokens are empty.
    """
    sums: dict[tuple[int, str], Counter[str]] = {}
    lists: dict[tuple[int, str], dict[str, list[int]]] = {}
    unknown: dict[tuple[int, str], list[str]] = {}  # counts that were not made
    names = ["step", "problem", "verdict", "program", "tokens"]
    names += TURN_COLUMNS[1:4] if TURN_COLUMNS[0] in samples else ()
    columns = (samples[name] for name in names)
    for step, problem, verdict, program, tokens, *several in zip(*columns, strict=True):
        # hidden and public verdict and program of each answer; "" without public tests
        hidden, public, programs = map(list, several or ([verdict], [], [program]))
        if FAILED_JUDGE in hidden or FAILED_JUDGE in public:
            continue
        key = step, problem
        solved = [hidden[min(turn, len(hidden) - 1)] == "ACCEPTED" for turn in range(turns)]
        first, last = solved[0], solved[-1]
        passed, first_passed = (part == ["ACCEPTED"] for part in (public[-1:], public[:1]))
        second = len(programs) > 1
        one, other = (program or "" for program in (programs[:2] if second else ("", "")))
        sums.setdefault(key, Counter(conversations=0)).update(
            conversations=1,
            passed=passed,
            false_stops=passed and not last,
            first_passed=first_passed,
            first_passed_right=first_passed and first,
            mended=last and not first,
            broken=first and not last,
            second=second,
            second_solved=second and last,
            other_text=one != other,
            other_form=whole and second and _form(one) != _form(other),
        )
        kinds = ("solved", "right_tokens", "wrong_tokens")
        of_cell = lists.setdefault(key, {kind: [] for kind in kinds})
        before = of_cell["solved"] or [0] * turns
        of_cell["solved"] = [a + b for a, b in zip(before, solved, strict=True)]
        if whole:
            of_cell["right_tokens" if last else "wrong_tokens"].append(int(tokens))
        missing = [] if whole else ["other_form"]
        if not public or not all(public):
            missing += ["passed", "false_stops", "first_passed", "first_passed_right"]
        unknown.setdefault(key, []).extend(missing)
    rows = [
        {"step": key[0], "problem": key[1], "turns": turns}
        | dict(sums[key])
        | {name: " ".join(map(str, found)) for name, found in lists[key].items()}
        | dict.fromkeys(unknown[key], UNKNOWN)
        for key in sums
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _form(program: str) -> str:
    return normal_form(program) or program.strip()


def numbers(texts: pd.Series) -> list[list[int]]:
    """Return the lists of numbers of a column such as "3 4 4"."""
    return [[int(number) for number in text.split()] for text in texts]


def solved_within(right: Sequence[int], wrong: Sequence[int], budget: int) -> float:
    """Return the chance that one of a problem's conversations solves it within a token budget.

    Conversations are drawn one after the other until `budget` generated tokens are spent, and each
    one that ends within it submits its last answer. `right` and `wrong` have the tokens of the
    sampled conversations, by that answer. The mean over all orders of them is exact: the first
    right one, of t tokens, comes after a set of j wrong ones with chance j! (n − j − 1)! / n!, and
    counts if t and the set's tokens are at most the budget. Sets are counted by size and tokens.

    It is unbiased if the budget ends before the conversations do. Otherwise it is that of all of
    them, a lower bound. Raises ValueError without a conversation.
    """
    n = len(right) + len(wrong)
    if not n:
        raise ValueError("no conversation")
    if not right or min(right) > budget:
        return 0.0
    sets = _sets_within(wrong, budget)
    spare = budget - np.asarray(right)
    within = sets[:, spare[spare >= 0]].sum(axis=1)  # (size,)
    chance = [1 / (n * comb(n - 1, size)) for size in range(len(sets))]
    return float(np.dot(within, chance))


def _sets_within(tokens: Sequence[int], budget: int) -> np.ndarray:
    """Return the number of sets by size j and most tokens s, as (j, s); s from 0 to the budget."""
    kept = [one for one in tokens if one <= budget]
    fits = int((np.cumsum(sorted(kept)) <= budget).sum())  # the most that fit together
    sets = np.zeros((fits + 1, budget + 1))
    sets[0, 0] = 1.0
    for one in kept:
        sets[1:, one:] += sets[:-1, : budget + 1 - one].copy()
    return sets.cumsum(axis=1)


# Metrics: a value and a weight per problem.

TURN_TABLES = ("turns.csv", "turn_differences.csv", "turn_curve.csv")
SHARES = ("other_form", "other_text", "mended", "mended_shown", "left", "kept", "broken")
BUDGETS = (1, 2, 4)  # in mean tokens of a conversation, of the group with the longest ones
ENOUGH = 2  # times a budget that a problem's conversations have in all, so that it ends first


class TurnPlan(NamedTuple):
    """What a comparison measures: the most answers, the k of n@k and 1@k, and token budgets."""

    turns: int
    answers: tuple[int, ...]
    budgets: tuple[int, ...] = ()

    def metrics(self) -> list[str]:
        """Return the names of all metrics, in order."""
        by_turn = [f"solved_in_{turn}" for turn in range(1, self.turns + 1)]
        of_k = [name for k in self.answers for name in (f"n@{k}", f"1@{k}", f"first_1@{k}")]
        within = [f"solved_in_{budget}_tokens" for budget in self.budgets]
        return [*by_turn, *of_k, *within, *SHARES, "false_stop"]


def solved_scores(counts: pd.DataFrame) -> dict[str, ProblemScores]:
    """Return the solve rate by turn from `count_conversations`: turn t's is `solved_in_t`."""
    by_problem = zip(numbers(counts["solved"]), counts["conversations"], strict=True)
    rates = [[solved / n for solved in by_turn] for by_turn, n in by_problem]
    turns = min(map(len, rates), default=0)
    cells = {f"solved_in_{t + 1}": [(rate[t], 1.0) for rate in rates] for t in range(turns)}
    return problem_scores(counts["problem"], cells)


def turn_scores(counts: pd.DataFrame, plan: TurnPlan) -> dict[str, ProblemScores]:
    """Return those of the plan's metrics that `count_conversations` of one evaluation has.

    Shares need conversations of several turns. Those of first or of second answers are weighted by
    their number.
    """
    rows: list[Any] = list(counts.itertuples(index=False))
    right, wrong = (numbers(counts[f"{kind}_tokens"]) for kind in ("right", "wrong"))
    cells: dict[str, list[tuple[float, float]]] = {}
    for k in plan.answers:
        cells[f"n@{k}"] = [_submitted(row, k, one=False) for row in rows]
        cells[f"1@{k}"] = [_submitted(row, k, one=True) for row in rows]
        cells[f"first_1@{k}"] = [_first_submitted(row, k) for row in rows]
    for budget in plan.budgets:
        pairs = zip(right, wrong, strict=True)
        solved = [(solved_within(*tokens, budget), 1.0) for tokens in pairs]
        cells[f"solved_in_{budget}_tokens"] = solved
    several = [row for row in rows if row.turns > 1]
    return (
        solved_scores(counts)
        | problem_scores(counts["problem"], cells)
        | problem_scores([row.problem for row in several], _shares(several))
    )


def _submitted(row: Any, k: int, one: bool) -> tuple[float, float]:
    """Return n@k of a problem, n all conversations or one, and its weight: 0 if undefined."""
    drawn, rest = divmod(k, row.turns)
    known = row.passed != UNKNOWN or not one
    if rest or drawn > row.conversations or not known:
        return 0.0, 0.0
    right = int(row.solved.split()[-1])
    if not one:
        return pass_at_k(row.conversations, right, drawn), 1.0
    passed_right = row.passed - row.false_stops
    return one_of(row.conversations, right, row.passed, passed_right, drawn), 1.0


def _first_submitted(row: Any, k: int) -> tuple[float, float]:
    """Return 1@k of a problem's first answers, and its weight: 0 if undefined."""
    if row.first_passed == UNKNOWN or k > row.conversations:
        return 0.0, 0.0
    right = int(row.solved.split()[0])
    chance = one_of(row.conversations, right, row.first_passed, row.first_passed_right, k)
    return chance, 1.0


def one_of(n: int, right: int, passed: int, passed_right: int, drawn: int) -> float:
    """Return the chance that the one submitted of `drawn` conversations is right.

    `n` were sampled: the last answers of `right` pass the hidden tests, of `passed` the public
    ones, of `passed_right` both. Of those drawn that pass the public tests one is submitted, each
    equally likely; if none does, any. The mean over all draws without replacement is exact, so it
    is unbiased: with p = C(n − passed, drawn) / C(n, drawn), the chance that none passes, it is

        (1 − p) passed_right / passed + p (right − passed_right) / (n − passed).

    1 <= drawn <= n.
    """
    none = comb(n - passed, drawn) / comb(n, drawn)
    chance = (1 - none) * passed_right / passed if passed else 0.0
    return chance + (none * (right - passed_right) / (n - passed) if none else 0.0)


def _shares(rows: Sequence[Any]) -> dict[str, list[tuple[float, float]]]:
    """Return the shares of each problem, each a value and the number that it is a share of."""
    cells: dict[str, list[tuple[float, float]]] = {name: [] for name in (*SHARES, "false_stop")}
    for row in rows:
        right = int(row.solved.split()[0])
        failing = row.conversations - right
        passed_known = row.conversations if row.passed != UNKNOWN else 0
        for name, part, whole in (
            ("other_form", row.other_form, row.second),
            ("other_text", row.other_text, row.second),
            ("mended", row.mended, failing),
            ("mended_shown", row.second_solved, row.second),
            ("left", failing - row.mended, failing),
            ("kept", right - row.broken, right),
            ("broken", row.broken, right),
        ):
            cells[name].append((part / whole if whole else 0.0, whole))
        share = row.false_stops / passed_known if passed_known else 0.0
        cells["false_stop"].append((share, float(passed_known > 0)))
    return cells


# Tables.


def turn_tables(
    models: Sequence[EvaluatedModel], groups: Sequence[Group], ks: Sequence[int]
) -> dict[str, pd.DataFrame]:
    """Return TURN_TABLES; tables without rows if no run has conversations.

    - turns.csv: label, seeds, step, turns (the most answers), metric, mean, low, high, problems, of
      each model where the metric is defined.
    - turn_differences.csv: the columns of differences.csv, of the trained models.
    - turn_curve.csv: label, seeds, the X_AXES, turn, mean, low, high: the solve rate by turn at
      each evaluation of a group.
    """
    if not any(has_conversations(run) for model in models for run in model.runs):
        return dict.fromkeys(TURN_TABLES, pd.DataFrame())
    plan = turn_plan(models, ks)
    by_seed = [[turn_scores(counts_at(r, m.step), plan) for r in m.runs] for m in models]
    scored = [
        GroupScores(model.label, model.seeds, stack_seeds(model.seeds, scores))
        for model, scores in zip(models, by_seed, strict=True)
    ]
    measured = set().union(*(group.grids for group in scored))
    metrics = [metric for metric in plan.metrics() if metric in measured]
    rows = []
    for model, group in zip(models, scored, strict=True):
        turns = max(map(turn_limit, model.runs))
        for metric in (name for name in metrics if name in group.grids):
            grid = group.grids[metric]
            problems = int((grid.weights > 0).any(axis=0).sum())
            key = (model.label, len(model.seeds), model.step, turns, metric)
            rows.append((*key, *grid_interval(grid, metric), problems))
    columns = ["label", "seeds", "step", "turns", "metric", "mean", "low", "high", "problems"]
    trained = [group for group, model in zip(scored, models, strict=True) if not model.is_base]
    tables = (
        pd.DataFrame(rows, columns=columns),
        difference_table(paired_differences(trained, metrics)),
        turn_curve(groups),
    )
    return dict(zip(TURN_TABLES, tables, strict=True))


def turn_plan(models: Sequence[EvaluatedModel], ks: Sequence[int]) -> TurnPlan:
    """Return what the models are measured by.

    The answers in all are k · T, for the k of pass@k and each number of turns T above 1. Budgets
    are BUDGETS, those for which every model has enough conversations.
    """
    limits = sorted({turn_limit(run) for model in models for run in model.runs})
    answers = sorted({k * turns for turns in limits if turns > 1 for k in ks})
    measured = [model for model in models if not model.is_base] or models
    lengths, totals = zip(*(_mean_tokens(model) for model in measured), strict=True)
    budgets = [round(many * max(lengths)) for many in BUDGETS]
    fitting = tuple(b for b in dict.fromkeys(budgets) if 0 < ENOUGH * b <= min(totals))
    return TurnPlan(limits[-1], tuple(answers), fitting)


def _mean_tokens(model: EvaluatedModel) -> tuple[float, float]:
    """Return the mean tokens of a conversation, and of all of a problem's conversations."""
    counts = [counts_at(run, model.step) for run in model.runs]
    names = ("right_tokens", "wrong_tokens")
    tokens = [sum(one) for table in counts for name in names for one in numbers(table[name])]
    problems = sum(map(len, counts))
    conversations = sum(int(table["conversations"].sum()) for table in counts)
    if not conversations:  # the judge failed on everything
        return 0.0, 0.0
    return sum(tokens) / conversations, sum(tokens) / problems


def turn_curve(groups: Sequence[Group]) -> pd.DataFrame:
    """Return turn_curve.csv; an evaluation is averaged over the runs that have it."""
    rows = []
    for group in groups:
        for step in sorted({step for run in group.runs for step in run.evaluated_steps}):
            runs = [run for run in group.runs if step in run.evaluated_steps]
            spent = [np.mean([spend_at_step(run, step, x) for run in runs]) for x in X_AXES]
            scores = [solved_scores(counts_at(run, step, False)) for run in runs]
            grids = stack_seeds(range(len(runs)), scores)
            for turn in range(1, len(grids) + 1):
                metric = f"solved_in_{turn}"
                ends = grid_interval(grids[metric], metric)
                rows.append((group.label, len(runs), *spent, turn, *ends))
    columns = ["label", "seeds", *X_AXES, "turn", "mean", "low", "high"]
    return pd.DataFrame(rows, columns=columns)
