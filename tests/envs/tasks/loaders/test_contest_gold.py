"""Rows of the newer data sets, from files to verdicts: right programs pass, wrong ones do not."""

import json
import shutil
from dataclasses import replace

import pytest
from envs.validation.labelled_programs import labelled_programs

from envs.judge.extract import as_response
from envs.judge.judge import Judge, JudgeConfig, Submission
from envs.problem import Verdict
from envs.sandbox import SandboxConfig, open_sandbox
from envs.tasks.rows import load_problems
from tests.envs.judge import checkers
from tests.envs.tasks import contest_rows as made
from tests.envs.tasks.dataset_rows import converter_of, write

FUNCTIONS = (made.ADD_FUNCTION, made.ADD_METHOD)
WRONG_FUNCTION = made.ADD_FUNCTION.replace("+", "-")
PYTHON_CHECKER = checkers.python("print(int(sum(map(int, given)) == int(output[0])))").source
TESTLIB_CHECKER = checkers.testlib(
    """
    int sum = inf.readInt() + inf.readInt();
    if (ouf.readInt() != sum) quitf(_wa, "not %d", sum);
    quitf(_ok, "ok");
    """
).source
ROWS = {
    "deepcoder": [
        made.deepcoder_taco(0),
        made.deepcoder_primeintellect(1),
        made.deepcoder_primeintellect(2, function=True),
        made.deepcoder_lcb(3),
        made.deepcoder_lcb(4, function=True),
    ],
    "codeforces": [made.codeforces(5), made.codeforces(6, generated_checker=PYTHON_CHECKER)],
    "livecodebench": [made.livecodebench(7), made.livecodebench(8, function=True)],
    "codecontests_plus": [
        made.codecontests_plus(9, checker=None),
        *([made.codecontests_plus(11, checker=TESTLIB_CHECKER)] if shutil.which("g++") else []),
    ],
    "taco_verified": [made.taco_verified(10)],
}


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    found = []
    for name, rows in ROWS.items():
        file = folder / f"{name}.jsonl"
        write(file, rows)
        loaded, skipped = load_problems(converter_of(name), file)
        assert len(loaded) == len(rows) and not skipped
        found += loaded
    return found


def test_gold_is_accepted_and_near_misses_are_not(problems, tmp_path):
    (tmp_path / "testlib.h").write_text(checkers.HEADER)
    expected, asked = [], []
    for problem in problems:
        # a marked problem is compared as `envs.validate` does
        (first, *_) = labelled_programs([replace(problem, solutions=("",))], first=1, cheap=False)
        right = FUNCTIONS if problem.fn_name else (made.ADD,)
        wrong = WRONG_FUNCTION if problem.fn_name else made.SUBTRACT
        for program in (*right, *problem.solutions, wrong):
            asked.append(Submission(first.problem, as_response(program)))
            expected.append(program != wrong)
    with open_sandbox(SandboxConfig(kind="embedded", workers=1)) as sandbox:
        judgements = Judge(sandbox, JudgeConfig(testlib=str(tmp_path))).judge(asked)
    accepted = [judgement.verdict is Verdict.ACCEPTED for judgement in judgements]
    assert accepted == expected and len(expected) > 25


def test_files_of_every_kind_hold_the_same_problems(tmp_path):
    pandas = pytest.importorskip("pandas")
    for name in ("deepcoder", "codeforces", "codecontests_plus"):
        rows = ROWS[name][:1]
        write(tmp_path / f"{name}.jsonl", rows)
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))
        pandas.DataFrame(rows).to_parquet(tmp_path / f"{name}.parquet")
        converter = converter_of(name)
        kinds = [
            load_problems(converter, tmp_path / f"{name}.{kind}")[0]
            for kind in ("jsonl", "json", "parquet")
        ]
        assert kinds[0] == kinds[1] == kinds[2] and len(kinds[0]) == 1
