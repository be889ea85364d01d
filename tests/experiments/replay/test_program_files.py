"""A file of programs that another wrote: read, judged by the real judge, refused by its line."""

import json

import pytest

from envs.judge.judge import Judge
from envs.problem import Problem, Test
from envs.reward import RewardConfig
from envs.sandbox import SandboxConfig, open_sandbox
from experiments.errors import UserError
from experiments.replay.judgements import JudgementCache
from experiments.replay.sources import ProgramFile
from experiments.run_dir.ledger import Ledger
from experiments.sample import PromptedProblem

DOUBLE = PromptedProblem(Problem("double", "", (), (Test("3\n", "6\n"),)), (1, 2))
RIGHT, WRONG = "print(2*int(input()))", "print(input())"


@pytest.fixture(scope="module")
def judge():
    with open_sandbox(SandboxConfig(kind="embedded", workers=1)) as sandbox:
        yield Judge(sandbox)


@pytest.fixture
def file_of(nano, judge, tmp_path):
    def make(*lines, needs_logps=False, max_tokens=64):
        path = tmp_path / "theirs.jsonl"
        path.write_text("\n".join(map(str, lines)) + "\n")
        return ProgramFile(
            path,
            judgement_cache=JudgementCache(tmp_path / "cache", judge, Ledger()),
            tokenizer=nano[1],
            reward=RewardConfig(),
            max_tokens=max_tokens,
            format_response=lambda program: f"```python\n{program}\n```",
            needs_logps=needs_logps,
        )

    return make


def line(**row):
    return json.dumps({"problem": "double"} | row)


def test_programs_responses_and_tokens_are_judged_and_paid(file_of, nano):
    tokenizer = nano[1]
    ids = [*tokenizer(RIGHT, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    told = [-0.5] * len(ids)
    rows = [line(program=RIGHT), line(response=WRONG), line(tokens=ids, logprobs=told)]
    file = file_of(*rows, line(problem="another", program=RIGHT))
    assert file.problems.keys() == {"double", "another"}
    samples = file.samples_for(DOUBLE)
    assert [s.reward for s in samples] == [1.0, 0.0, 1.0]
    assert [s.offline for s in samples] == [True, True, False]
    assert samples[2].tokens == tuple(ids)
    assert samples[0].judgement.program == RIGHT
    assert {(s.origin.source, s.origin.run) for s in samples} == {("file", "theirs.jsonl")}
    text = tokenizer.decode(list(samples[0].tokens), skip_special_tokens=True)
    assert text == f"```python\n{RIGHT}\n```"


def test_what_cannot_be_used_is_left_out_and_counted(file_of):
    file = file_of(line(program=RIGHT), line(response=RIGHT, logprobs=[-1.0]), max_tokens=12)
    assert file.samples_for(DOUBLE) == []
    assert sum(file.left_out.values()) == 2


def test_log_probs_after_another_prompt_are_left_out(file_of, nano):
    ids = nano[1](RIGHT, add_special_tokens=False)["input_ids"]
    rows = [
        line(tokens=ids, logprobs=[-0.5] * len(ids), prompt=[*DOUBLE.tokens, *more])
        for more in ([], [3])
    ]
    file = file_of(*rows, line(tokens=ids, prompt=[3]))
    assert [s.logps is None for s in file.samples_for(DOUBLE)] == [False, True]
    assert file.left_out == {"log-probs after another prompt than this run's": 1}


REFUSED = [
    "{",
    line(program=RIGHT, logprobs=[float("nan")]),
    line(program=RIGHT, logprobs=[0.5]),
    line(program=RIGHT, logprobs=["a"]),
    line(program=RIGHT, logprobs=3),
    line(tokens=[10**9]),
    line(tokens=[-1]),
    line(tokens=[5.7]),
    line(program=RIGHT, prompt="ab"),
    line(tokens="ab"),
    line(program=7),
    line(response=None),
    line(program="\ud83d"),
    line(),
    line(program=RIGHT, response=RIGHT),
    json.dumps({"program": RIGHT}),
]


@pytest.mark.parametrize("bad", REFUSED)
def test_a_line_that_is_wrong_is_named(bad, file_of):
    with pytest.raises(UserError, match=r"theirs\.jsonl.*: line 2: ") as refused:
        file_of(line(program=RIGHT), bad)
    assert "\n" not in str(refused.value)


def test_what_needs_log_probs_refuses_a_line_without(file_of):
    with pytest.raises(UserError, match=r"line 1 has no logprobs.*missing_logprobs=reference"):
        file_of(line(program=RIGHT), needs_logps=True)
