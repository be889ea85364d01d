"""MiniContests: the same bytes everywhere, disjoint splits, tests that tell right from wrong."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from functools import lru_cache

import pytest

from envs.judge.extract import extract_program
from envs.problem import Problem
from envs.tasks.mini import FAMILIES, task
from envs.tasks.mini.build import passes, run_own

TEST_SPLIT_SHA256 = "68a4db2e227f50477b19e5cd1ba81b3a9d2da7eab922900c96a63ae1f264b8df"


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


def test_the_same_bytes_everywhere():
    digest = hashlib.sha256(repr(_load("test")).encode()).hexdigest()
    assert digest == TEST_SPLIT_SHA256


def test_an_offline_program_is_what_the_judge_will_extract():
    for problem in _every_split():
        for program in problem.solutions + problem.incorrect_solutions:
            assert extract_program(task.response(program)) == program


def test_seed_and_size_decide():
    assert task.load("train", 30, seed=1) == task.load("train", 30, seed=1)
    assert task.load("train", 30, seed=1) != task.load("train", 30, seed=2)


def test_families_and_tiers_are_spread_evenly():
    for split in task.SPLITS:
        tiers = Counter(p.difficulty for p in _load(split))
        families = Counter(p.tags[0] for p in _load(split))
        assert max(tiers.values()) - min(tiers.values()) <= len(FAMILIES)
        assert set(families) == {family.name for family in FAMILIES}
        assert max(families.values()) - min(families.values()) <= len(task.TIERS)


def test_no_composition_is_in_two_splits_and_every_part_is_in_train():
    for family in FAMILIES:
        sides = {split: task.compositions(family, split) for split in task.SPLITS}
        keys = [tuple(part.name for part in parts) for side in sides.values() for parts in side]
        assert len(keys) == len(set(keys))
        for slot, (_, parts) in enumerate(family.slots):
            assert {composition[slot].name for composition in sides["train"]} == {
                part.name for part in parts
            }


def test_no_statement_of_validation_or_test_is_in_a_larger_train_split():
    train = {p.statement for p in task.load("train", 300, seed=5)}
    assert not train & {p.statement for split in ("validation", "test") for p in _load(split)}


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
