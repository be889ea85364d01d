"""MiniContests: the same bytes everywhere, disjoint splits, tests that tell right from wrong."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from dataclasses import replace
from functools import lru_cache

import pytest

from envs.judge.extract import extract_program
from envs.problem import Problem
from envs.tasks.mini import FAMILIES, task
from envs.tasks.mini.build import passes, run_own
from envs.tasks.mini.composition import draft
from envs.tasks.mini.splits import TIERS, compositions

SHA256 = {
    "train": "e3119c3c5bb6308fe83762fc09a3ff4354aeda2ebc7f7ac270f9c302c6b7c389",
    "tune": "a0f6111cf8969e68b24d601b2a15944d6b29e20ac3b6ce40fab93cf1fa772be6",
    "choose": "ef7b560666b72c72018dd61b374762967ba78b6e3c149980aaaa9f42b2c75cc3",
    "test": "bd59ee2b1ba938473791836216278c5cd21abf22c714be4c308947492b6437ef",
}
# of the splits of the version with three of them, which called choose's problems test
EARLIER_SHA256 = {
    "validation": "d546e92bae79295c6458d0e06b435ae10cef3ab55183037dda3980b5ca76a3ff",
    "test": "68a4db2e227f50477b19e5cd1ba81b3a9d2da7eab922900c96a63ae1f264b8df",
}


@lru_cache
def _load(split: str) -> tuple[Problem, ...]:
    return tuple(task.load(split))


def _every_split() -> list[Problem]:
    return [problem for split in task.SPLITS for problem in _load(split)]


def test_default_sizes_names_and_unique_statements():
    for split, size in task.SPLITS.items():
        problems = _load(split)
        assert [p.name for p in problems] == [f"mini/{split}/{i:04d}" for i in range(size)]
        assert len({p.statement for p in problems}) == size


def _sha256(problems: tuple[Problem, ...]) -> str:
    return hashlib.sha256(repr(problems).encode()).hexdigest()


def _renamed(split: str, earlier: str) -> tuple[Problem, ...]:
    names = [p.name.replace(f"mini/{split}/", f"mini/{earlier}/") for p in _load(split)]
    return tuple(replace(p, name=name) for p, name in zip(_load(split), names, strict=True))


def test_the_same_bytes_everywhere():
    assert {split: _sha256(_load(split)) for split in task.SPLITS} == SHA256


def test_tune_is_the_earlier_validation_split_and_choose_the_earlier_test_split():
    earlier = {"validation": _renamed("tune", "validation"), "test": _renamed("choose", "test")}
    assert {split: _sha256(problems) for split, problems in earlier.items()} == EARLIER_SHA256


def test_every_composition_of_the_earlier_test_problems_is_in_choose(monkeypatch):
    """The 120 problems were looked at for a long time, so the new test split has none like them."""
    drawn = []

    def recorded(rng, family, composition):
        drawn.append((family, composition))
        return draft(rng, family, composition)

    monkeypatch.setattr(task, "draft", recorded)
    assert tuple(task.load("choose")) == _load("choose")
    assert len(set(drawn)) >= 120
    for family, composition in drawn:
        assert composition in compositions(family, "choose")
        assert composition not in compositions(family, "test")


def test_an_offline_program_is_what_the_judge_will_extract():
    for problem in _every_split():
        for program in problem.solutions + problem.incorrect_solutions:
            assert extract_program(task.response(program)) == program


def test_seed_and_size_decide():
    assert task.load("train", 30, seed=1) == task.load("train", 30, seed=1)
    assert task.load("train", 30, seed=1) != task.load("train", 30, seed=2)


def test_families_and_tiers_are_spread_evenly():
    for split in ("train", "tune", "choose"):
        tiers = Counter(p.difficulty for p in _load(split))
        families = Counter(p.tags[0] for p in _load(split))
        assert max(tiers.values()) - min(tiers.values()) <= len(FAMILIES)
        assert set(families) == {family.name for family in FAMILIES}
        assert max(families.values()) - min(families.values()) <= len(TIERS)


def test_test_has_every_family_and_tier_but_easy_grids():
    """Choose has the seven compositions of easy grids that are not in train or tune."""
    cells = Counter((p.tags[0], p.difficulty) for p in _load("test"))
    every = {(family.name, tier) for family in FAMILIES for tier in TIERS}
    assert every - set(cells) == {("grids", "easy")}
    assert min(cells.values()) >= 4


def test_no_composition_is_in_two_splits_and_every_part_is_in_train():
    for family in FAMILIES:
        sides = {split: compositions(family, split) for split in task.SPLITS}
        keys = [tuple(part.name for part in parts) for side in sides.values() for parts in side]
        assert len(keys) == len(set(keys))
        for slot, (_, parts) in enumerate(family.slots):
            assert {composition[slot].name for composition in sides["train"]} == {
                part.name for part in parts
            }


def test_no_statement_is_in_two_splits():
    larger = [p.statement for p in task.load("train", 300, seed=5)]
    held_out = [p.statement for split in ("tune", "choose", "test") for p in _load(split)]
    assert len(set(held_out)) == len(held_out)
    assert not set(held_out) & {*larger, *(p.statement for p in _load("train"))}


def test_right_programs_pass_and_wrong_ones_fail():
    for problem in _every_split():
        tests = problem.samples + problem.tests
        assert all(passes(program, tests) for program in problem.solutions), problem.name
        assert not any(passes(program, problem.tests) for program in problem.incorrect_solutions)


def test_solutions_differ_in_structure_and_wrong_ones_abound():
    for problem in _every_split():
        assert len({ast.dump(ast.parse(program)) for program in problem.solutions}) >= 4
        assert len(problem.incorrect_solutions) >= 3
        assert 6 <= len(problem.tests) <= 10


def test_no_constant_answer_passes_half_of_the_tests():
    for problem in _every_split():
        answers = Counter(tuple(test.output.split()) for test in problem.tests)
        assert max(answers.values()) * 2 <= len(problem.tests)


def test_prompt_shows_statement_and_sample_and_no_hidden_test():
    problem = _load("test")[0]
    shown = problem.samples[0]
    assert task.prompt(problem) == (
        f"{problem.statement}\nin:\n{shown.input.rstrip()}\nout:\n{shown.output.rstrip()}"
    )


def test_own_runner_prints_like_python():
    assert run_own("print(*[1,2],sep='-')\nprint(int(input())+1)", "4\n") == "1-2\n5\n"
    with pytest.raises(EOFError):
        run_own("input();input()", "4\n")


@pytest.mark.parametrize(("split", "size"), [("dev", 3), ("test", 0)])
def test_bad_arguments_are_named(split: str, size: int):
    with pytest.raises(ValueError, match="mini"):
        task.load(split, size)
