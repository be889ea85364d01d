"""Prompts in tokens: read once, then kept beside the prepared data set."""

from dataclasses import replace

import pytest

from envs.cache_folder import cache_root
from envs.tasks import open_task
from envs.tasks.config import TaskConfig
from experiments.errors import UserError
from experiments.policy.loading import load
from experiments.rollout.prompts import encode_prompts
from tests.compose import model_config
from tests.envs.tasks.dataset_rows import config, taco_row, write


@pytest.fixture(scope="module")
def tokenizer():
    return load(model_config())[1]


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.setenv("SPO_BENCH_CACHE", str(tmp_path / "cache"))
    rows = [taco_row(i, question="word " * (i * 40)) for i in range(1, 40)]
    return open_task(config("taco", write(tmp_path / "rows.jsonl", rows), decontaminate=False))


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
        given = config("taco", str(tmp_path / "rows.jsonl"), decontaminate=False)
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
