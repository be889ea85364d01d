"""MiniContests: the same bytes everywhere, disjoint splits, tests that tell right from wrong."""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import lru_cache

import pandas as pd
import pytest

from envs.problem import Problem
from envs.tasks import mini, open_task
from envs.tasks.mini import MINI, MINI_LONG, PROBLEM_SETS, TIERS, Part, compositions, draft, passes
from envs.tasks.stored import statement_hash
from envs.tasks.task import SPLITS, task_config
from tests.selection import all_but_slow

SHA256 = {
    "mini": {
        "train": "e3119c3c5bb6308fe83762fc09a3ff4354aeda2ebc7f7ac270f9c302c6b7c389",
        "tune": "a0f6111cf8969e68b24d601b2a15944d6b29e20ac3b6ce40fab93cf1fa772be6",
        "choose": "ef7b560666b72c72018dd61b374762967ba78b6e3c149980aaaa9f42b2c75cc3",
        "test": "bd59ee2b1ba938473791836216278c5cd21abf22c714be4c308947492b6437ef",
    },
    "mini_long": {
        "train": "a164fde8cedc1131a2cb4f2f77b306676db7bc7e6422fd304a9bd0f4c472f125",
        "tune": "2f088fb9e7bb58708b1fc53b6b25344f01e7f988082eee2edaa5711e905bb75a",
        "choose": "b5ac97f92ae138a30ec03f2a2a52d02126985a85a692b85c534951e95eb3bb09",
        "test": "03c45db62e79b18aaec09e4bc73f8f17e3dd6d58fdc44b5f8ef3329a656c77fb",
    },
}
DEFAULT_SIZES = {"train": 512, "tune": 60, "choose": 120, "test": 200}
# of the loads here; a longer problem takes longer to build, so fewer are loaded
SIZES = {"mini": DEFAULT_SIZES, "mini_long": dict.fromkeys(DEFAULT_SIZES, 21)}

# Slow: the same families, of more parts each.
every_set = pytest.mark.parametrize("name", all_but_slow(PROBLEM_SETS, slow=["mini_long"]))


@lru_cache
def _load(split: str, name: str = "mini") -> tuple[Problem, ...]:
    return tuple(mini.load(split, SIZES[name][split], name=name))


def _every_split(name: str) -> list[Problem]:
    return [problem for split in DEFAULT_SIZES for problem in _load(split, name)]


# Fields of `Problem` that are younger than the digests here. MiniContests sets none of them.
LATER = (", rating=None, date=''", ", checker_program=None", ", in_order=False")


def _sha256(problems: tuple[Problem, ...]) -> str:
    text = repr(problems)
    for unset in LATER:
        assert text.count(unset) == len(problems)
        text = text.replace(unset, "")
    return hashlib.sha256(text.encode()).hexdigest()


@every_set
def test_the_same_bytes_everywhere(name: str):
    assert {split: _sha256(_load(split, name)) for split in DEFAULT_SIZES} == SHA256[name]


def test_every_composition_of_the_earlier_test_problems_is_in_choose(monkeypatch):
    """The 120 problems were looked at for a long time, so the new test split has none like them."""
    drawn = []

    def recorded(rng, family, composition):
        drawn.append((family, composition))
        return draft(rng, family, composition)

    monkeypatch.setattr(mini, "draft", recorded)
    assert tuple(mini.load("choose", 120)) == _load("choose")
    assert len(set(drawn)) >= 120
    for family, composition in drawn:
        assert composition in compositions(MINI, family, "choose")
        assert composition not in compositions(MINI, family, "test")


@every_set
def test_families_and_tiers_are_spread_evenly(name: str):
    for split in ("train", "tune", "choose"):
        tiers = Counter(p.difficulty for p in _load(split, name))
        families = Counter(p.tags[0] for p in _load(split, name))
        assert max(tiers.values()) - min(tiers.values()) <= len(families)
        assert set(families) == {family.name for family in PROBLEM_SETS[name].families}
        assert max(families.values()) - min(families.values()) <= len(TIERS)


@every_set
def test_no_composition_is_in_two_splits_and_every_part_is_in_train(name: str):
    for family in PROBLEM_SETS[name].families:
        sides = {split: compositions(PROBLEM_SETS[name], family, split) for split in DEFAULT_SIZES}
        keys = [tuple(part.name for part in parts) for side in sides.values() for parts in side]
        assert len(keys) == len(set(keys))
        for slot, (_, parts) in enumerate(family.slots):
            assert {composition[slot].name for composition in sides["train"]} == {
                part.name for part in parts
            }


@every_set
def test_no_statement_is_in_two_splits(name: str):
    larger = [p.statement for p in mini.load("train", SIZES[name]["train"], seed=5, name=name)]
    held_out = [p.statement for split in ("tune", "choose", "test") for p in _load(split, name)]
    assert len(set(held_out)) == len(held_out)
    assert not set(held_out) & {*larger, *(p.statement for p in _load("train", name))}


@every_set
def test_right_programs_pass_and_wrong_ones_fail(name: str):
    for problem in _every_split(name):
        tests = problem.samples + problem.tests
        assert all(passes(program, tests) for program in problem.solutions), problem.name
        assert not any(passes(program, problem.tests) for program in problem.incorrect_solutions)


CELLS = dict(next(family for family in MINI_LONG.families if family.name == "cells").slots)
RESULTS, TOTALS = CELLS["outer"], CELLS["inner"]


@pytest.mark.parametrize("part", [*RESULTS, *TOTALS], ids=lambda part: part.name)
def test_right_forms_of_a_part_agree_on_negative_values_and_the_empty_list(part: Part):
    """Computed values may be negative: max([0,*x]) is no maximum of them."""
    lists = [[-5, -1], [3, -2], [-4], [7, 7], *([[]] if part in TOTALS else [])]
    for values in lists:
        answers = [eval(form.replace("@", "v"), {"v": values}) for form in part.right]
        assert len({str(answer) for answer in answers}) == 1, (values, part.right)


def test_prompt_shows_statement_and_sample_and_no_hidden_test():
    problem = _load("test")[0]
    shown = problem.samples[0]
    assert mini.prompt(problem) == (
        f"{problem.statement}\nin:\n{shown.input.rstrip()}\nout:\n{shown.output.rstrip()}"
    )


def test_a_table_chooses_the_training_problems(tmp_path):
    few = [
        "task=mini",
        *(f"task.{s}_problems={n}" for s, n in zip(SPLITS, (9, 2, 2, 2), strict=True)),
    ]
    whole, file = open_task(task_config(few)), tmp_path / "rates.csv"

    def chosen(good):
        rows = [(statement_hash(p.statement), i < good) for i, p in enumerate(whole.train)]
        pd.DataFrame(rows, columns=["statement", "good"]).to_csv(file)
        return open_task(task_config([*few, f"task.quality={file}"]))

    fewer = chosen(4)
    assert list(fewer.train) == list(whole.train)[:4] and list(fewer.test) == list(whole.test)
    assert fewer.data_hash != whole.data_hash
    with pytest.raises(ValueError, match=r"rates\.csv: none of its good problems is here"):
        chosen(0)
