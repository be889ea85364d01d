"""Prompts in tokens, read once and then kept beside the prepared data set; facts of problems."""

from dataclasses import replace

import pytest

from envs.caching import cache_root
from envs.tasks import open_task
from envs.tasks.stored import strengths
from envs.tasks.strength import cheap_earnings, earnings_line
from envs.tasks.task import TaskConfig
from experiments.errors import UserError
from experiments.policy.loading import load
from experiments.rollout.prompts import encode_prompts, problem_facts, problem_line
from tests.compose import model_config
from tests.envs.tasks.contest_rows import codecontests_plus, codeforces
from tests.envs.tasks.dataset_rows import config as task_config
from tests.envs.tasks.dataset_rows import taco_row, write
from tests.experiments.compose import config


@pytest.fixture(scope="module")
def tokenizer():
    return load(model_config())[1]


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.setenv("SPO_BENCH_CACHE", str(tmp_path / "cache"))
    rows = [taco_row(i, question="word " * (i * 40)) for i in range(1, 40)]
    return open_task(task_config("taco", write(tmp_path / "rows.jsonl", rows), decontaminate=False))


def test_a_batch_of_more_prompts_than_problems_is_said(task):
    assert "5 for training, fewer than train.prompts=6" in problem_line(task, 5, 1, {}, 6)
    assert "train.prompts" not in problem_line(task, 5, 1, {}, 5)


def test_long_prompts_are_dropped_and_counted(task, tokenizer):
    every, none = encode_prompts(
        task.train, task, tokenizer, TaskConfig(max_prompt_tokens=10**6), {}
    )
    some, dropped = encode_prompts(
        task.train, task, tokenizer, TaskConfig(max_prompt_tokens=900), {}
    )
    assert none == 0 and len(every) == len(task.train)
    assert 0 < dropped < len(task.train) and len(some) + dropped == len(task.train)
    assert [p.tokens for p in some] == [p.tokens for p in every if len(p.tokens) <= 900]
    assert [p.problem for p in every] == list(task.train)


def test_the_second_time_nothing_is_encoded(task, tokenizer):
    first, _ = encode_prompts(task.train, task, tokenizer, TaskConfig(max_prompt_tokens=900), {})

    def prompt(_):
        raise AssertionError("a prompt was made again")

    unasked = replace(task, prompt=prompt)
    again, _ = encode_prompts(task.train, unasked, tokenizer, TaskConfig(max_prompt_tokens=900), {})
    assert [p.tokens for p in again] == [p.tokens for p in first]
    with pytest.raises(AssertionError):
        encode_prompts(task.train, unasked, tokenizer, TaskConfig(chat=False), {})
    with pytest.raises(AssertionError):
        encode_prompts(task.train, unasked, tokenizer, TaskConfig(), {"enable_thinking": False})
    assert len(list((cache_root() / "prompts").iterdir())) == 1


def test_another_template_is_encoded_anew(task, tokenizer, tmp_path):
    wide, found = TaskConfig(max_prompt_tokens=10**6), []
    for text in ("{{ statement }} Go.", "{{ statement }} Go!"):
        (tmp_path / "mine.jinja").write_text(text)
        given = task_config("taco", str(tmp_path / "rows.jsonl"), decontaminate=False)
        mine = open_task(replace(given, prompt=str(tmp_path / "mine.jinja")))
        found.append(encode_prompts(mine.test, mine, tokenizer, wide, {})[0][0].tokens)
    assert tokenizer.decode(found[0]).replace(" Go.", " Go!") == tokenizer.decode(found[1])
    assert found[0] != found[1]


def test_a_tokenizer_without_a_template_is_said(task, tokenizer):
    template, tokenizer.chat_template = tokenizer.chat_template, None
    try:
        with pytest.raises(UserError, match=r"task\.chat=false"):
            encode_prompts(task.train, task, tokenizer, TaskConfig(), {})
    finally:
        tokenizer.chat_template = template


def test_answers_that_are_no_programs_have_no_such_facts():
    assert problem_facts(config("task=sums"), {"train": []}, "1") == {}


def test_stored_and_generated_problems_are_counted_alike(tmp_path):
    rows = [taco_row(i, question=f"Repeat {i}. Input 0 Output 0.") for i in range(40)]
    write(tmp_path / "train-0.jsonl", rows)
    run = config("task=taco", f"task.path={tmp_path}", "task.decontaminate=false")
    stored = open_task(run.task).train
    earnings = cheap_earnings(strengths(stored))
    assert earnings == cheap_earnings(strengths(list(stored)))
    count = len(stored)
    assert earnings["problems"] == earnings["compared"] == earnings["earned_by_any"] == count > 0
    assert earnings["earned"]["echo of the input"] == count
    assert earnings["earned"]["samples table"] == 0
    assert earnings["mean_share"]["samples table"] == pytest.approx(1 / 6, abs=1e-4)
    assert earnings_line(earnings) == (
        f"programs that solve nothing earn the reward of {count} of {count} training problems "
        f"(echo of the input: {count})"
    )
    assert earnings_line(cheap_earnings([])) == ""


def test_checker_programs_are_counted_and_those_that_cannot_run_are_refused(tmp_path):
    found = {}
    for name, rows in {
        "codeforces": [codeforces(i, generated_checker="print(1)" * (i > 1)) for i in range(5)],
        "codecontests_plus": [codecontests_plus(i) for i in range(3)],
        "taco": [taco_row(0)],
    }.items():
        run = config(f"task={name}", f"task.path={write(tmp_path / f'{name}.jsonl', rows)}")
        splits = open_task(run.task).splits().values()
        found[name] = [problem for problems in splits for problem in problems]
    assert "checker_programs" not in problem_facts(run, {"train": found["taco"]}, "1")
    facts = problem_facts(run, {"train": found["codeforces"], "eval": found["taco"]}, "1")
    assert facts["checker_programs"] == {"train": {"python": 3}, "eval": {}}
    nowhere = config("task=codecontests_plus", "task.path=x", f"judge.testlib={tmp_path}")
    with pytest.raises(UserError, match=r"compiler|judge\.testlib=.* holds no testlib\.h"):
        problem_facts(nowhere, {"eval": found["codecontests_plus"]}, "1")
