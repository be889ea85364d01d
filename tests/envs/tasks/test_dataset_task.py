"""Public data sets as tasks: splits, caps, what is left out, and problems that stand twice."""

import json

import pytest

from envs.judge.extract import extract_program
from envs.tasks import open_task
from envs.tasks.task import SPLITS
from tests.envs.tasks.dataset_rows import (
    code_contests_row,
    config,
    every_problem,
    names,
    statement,
    taco_row,
    write,
)


def test_one_file_is_split_without_overlap_and_the_same_every_time(tmp_path):
    file = write(tmp_path / "rows.jsonl", [taco_row(i) for i in range(200)])
    task, again = (open_task(config("taco", file)) for _ in range(2))
    assert len(every_problem(task)) == 200
    assert 20 < len(task.test) < 60 and 5 < len(task.tune) < 40 and 5 < len(task.choose) < 40
    assert len({problem.name for problem in every_problem(task)}) == 200
    assert task.data_hash == again.data_hash


def test_more_rows_move_no_problem_to_another_split(tmp_path):
    few = open_task(config("taco", write(tmp_path / "a.jsonl", [taco_row(i) for i in range(60)])))
    rows = [taco_row(i) for i in reversed(range(120))]
    many = open_task(config("taco", write(tmp_path / "b.jsonl", rows)))
    for split in SPLITS:
        there = {problem.statement for problem in getattr(many, split)}
        assert {problem.statement for problem in getattr(few, split)} <= there


def test_a_folder_brings_its_own_splits(tmp_path):
    write(tmp_path / "train-0.jsonl", [taco_row(i) for i in range(30)])
    write(tmp_path / "train-1.jsonl", [taco_row(i) for i in range(30, 50)])
    write(tmp_path / "test-0.jsonl", [taco_row(i) for i in range(50, 60)])
    task = open_task(config("taco", str(tmp_path)))
    assert len(task.test) == 10
    assert len(names(every_problem(task))) == 60  # two files number their rows alike


@pytest.mark.parametrize("validation", [True, False])
def test_choose_may_have_files_of_its_own(tmp_path, validation):
    """Then all of the validation split is tune; without one, tune is cut from train."""
    write(tmp_path / "train.jsonl", [taco_row(i) for i in range(60)])
    write(tmp_path / "choose-0.jsonl", [taco_row(i) for i in range(60, 63)])
    write(tmp_path / "test.jsonl", [taco_row(i) for i in range(63, 66)])
    if validation:
        write(tmp_path / "valid.jsonl", [taco_row(i) for i in range(66, 69)])
    task = open_task(config("taco", str(tmp_path)))
    assert [name.partition("@")[2] for name in sorted(names(task.choose))] == ["choose-0"] * 3
    assert {name.partition("@")[2] for name in names(task.tune)} <= {"valid", "train"}
    assert len(task.test) == 3 and len(task.train) + len(task.tune) == 60 + 3 * validation
    assert (len(task.tune) == 3) == validation
    assert set(task.split_shares) == (set() if validation else {"tune", "train"})


def test_sizes_are_upper_limits(tmp_path):
    file = write(tmp_path / "rows.jsonl", [taco_row(i) for i in range(100)])
    task = open_task(config("taco", file, train_problems=7, test_problems=3))
    assert (len(task.train), len(task.test)) == (7, 3)


def test_what_cannot_be_used_is_counted_by_its_reason(tmp_path):
    rows = [
        taco_row(0),
        taco_row(1, input_output="{broken"),
        taco_row(2, question="Print any of them."),
        taco_row(3, question="   "),
        taco_row(4, input_output=json.dumps({"inputs": [], "outputs": []})),
    ]
    task = open_task(config("taco", write(tmp_path / "rows.jsonl", rows)))
    assert task.rows_read == 5
    assert task.left_out == {
        "input_output is not JSON": 1,
        "needs a checker of its own": 1,
        "no statement": 1,
        "no tests": 1,
    }
    kept = len(every_problem(task))
    assert kept + task.left_out.total() == task.rows_read


def test_tests_are_capped_by_number_and_by_bytes_and_samples_stay(tmp_path):
    file = write(tmp_path / "rows.jsonl", [code_contests_row(0, "A"), code_contests_row(1, "B")])
    task = open_task(config("code_contests", file, max_tests=4))
    for problem in every_problem(task):
        assert len(problem.tests) == 4
        assert problem.samples[0] in problem.tests
    none = open_task(config("code_contests", file, max_test_bytes=1))
    assert none.left_out == {"tests over task.max_test_bytes": 2}


def test_generated_tests_come_last(tmp_path):
    made = {"input": [f"{i}\n" for i in range(100, 130)], "output": ["1\n"] * 30}
    row = code_contests_row(0, "A", generated_tests=made)
    file = write(tmp_path / "rows.jsonl", [row])

    def inputs(**limits):
        task = open_task(config("code_contests", file, **limits))
        (problem,) = every_problem(task)
        assert problem.generated_tests == sum(int(test.input) >= 100 for test in problem.tests)
        return [int(test.input) for test in problem.tests]

    assert len(inputs()) == 39 and sorted(inputs()[:9]) == list(range(9))
    few, more = inputs(max_tests=5), inputs(max_tests=12)
    assert few[0] == 1 and max(few) < 9 and more[:5] == few
    assert sorted(more[:9]) == list(range(9)) and min(more[9:]) >= 100


def test_a_crossing_takes_out_of_train_what_stands_in_test(tmp_path):
    train = write(tmp_path / "cc.jsonl", [code_contests_row(i, f"P{i}") for i in range(20)])
    reworded = statement(3).replace("Given", "You are given").upper()
    test = write(tmp_path / "taco.jsonl", [taco_row(7), taco_row(99, question=reworded)])
    task = open_task(config("paper", train, test_path=test))
    assert {pair["problem"] for pair in task.decontaminated} == {
        "code_contests/P3",
        "code_contests/P7",
    }
    assert task.left_out == {"stands in another split too": 2}
    assert len(task.test) == 2 and len(every_problem(task)) == 20
    apart = open_task(config("paper", train, test_path=test, decontaminate=False))
    assert len(every_problem(apart)) == 22 and not apart.decontaminated


def weak_row(number, outputs, **changed):
    """A row whose statement shows its first two tests."""
    inputs = [f"{i + 1} 0\n" for i in range(len(outputs))]
    shown = "".join(
        f"\nInput {a} Output {b}\n" for a, b in zip(inputs[:2], outputs[:2], strict=True)
    )
    tests = json.dumps({"inputs": inputs, "outputs": outputs})
    return taco_row(number, question=statement(number) + shown, input_output=tests, **changed)


def test_problems_whose_reward_pays_a_table_or_a_constant_are_not_trained_on(tmp_path):
    shown, one_hidden, constant, strong = (
        ["a\n", "b\n"],
        ["a\n", "b\n", "c\n"],
        ["a\n", "a \n", "a\n", "a\n"],
        ["a\n", "b\n", "c\n", "d\n"],
    )
    rows = [weak_row(i, kind) for i, kind in enumerate([shown, one_hidden, constant, strong])]
    write(tmp_path / "train-0.jsonl", [taco_row(i) for i in range(50, 90)] + rows)
    write(tmp_path / "valid-0.jsonl", [weak_row(i, shown) for i in range(10, 14)])
    write(tmp_path / "test-0.jsonl", [weak_row(i, shown) for i in range(20, 24)])
    task = open_task(config("taco", str(tmp_path)))
    statements = {problem.statement for problem in task.train}
    assert [row["question"] in statements for row in rows] == [False, False, False, True]
    assert task.left_out == {
        "fewer than task.min_hidden_tests=2 hidden tests (of train only)": 2,
        "one output for all tests (of train only)": 1,
    }
    assert len(task.test) == 4 and len(task.tune) + len(task.choose) == 4
    one = open_task(config("taco", str(tmp_path), min_hidden_tests=1))
    assert len(one.train) == len(task.train) + 1
    everything = open_task(config("taco", str(tmp_path), min_hidden_tests=0))
    assert len(everything.train) == 44 and not everything.left_out


def test_answers_that_are_no_programs_need_no_hidden_tests(tmp_path):
    write(tmp_path / "train-0.jsonl", [weak_row(i, ["a\n"]) for i in range(9)])
    write(tmp_path / "valid-0.jsonl", [taco_row(i) for i in range(20, 40)])
    numbers = "envs.tasks.sums.FirstInteger"
    assert len(open_task(config("taco", str(tmp_path), environment=numbers)).train) == 9
    assert len(open_task(config("taco", str(tmp_path))).train) == 0


def test_a_validation_split_is_halved_by_the_statement(tmp_path):
    write(tmp_path / "train-0.jsonl", [taco_row(i) for i in range(30)])
    write(tmp_path / "valid-0.jsonl", [taco_row(i) for i in range(30, 90)])
    task = open_task(config("taco", str(tmp_path)))
    assert len(task.train) == 30 and len(task.tune) + len(task.choose) == 60
    assert 15 < len(task.tune) < 45
    write(tmp_path / "valid-0.jsonl", [taco_row(i) for i in range(60, 120)])
    more = open_task(config("taco", str(tmp_path)))
    statements = [{p.statement for p in problems} for problems in (task.tune, more.choose)]
    assert not statements[0] & statements[1]


def test_a_problem_stays_in_the_last_of_the_splits_that_have_it(tmp_path):
    def reworded(number):
        return taco_row(number, question=statement(number).replace("Given", "You have").upper())

    rows = [taco_row(i) for i in range(90)]
    write(tmp_path / "train-0.jsonl", rows[:30] + [reworded(i) for i in range(30, 50)])
    write(tmp_path / "valid-0.jsonl", rows[30:60] + [reworded(i) for i in range(60, 80)])
    write(tmp_path / "test-0.jsonl", rows[60:])
    task = open_task(config("taco", str(tmp_path)))
    found = {(pair["split"], pair["other_split"]) for pair in task.decontaminated}
    assert found == {
        ("train", "tune"),
        ("train", "choose"),
        ("tune", "test"),
        ("choose", "test"),
    }
    assert len(task.train) == 30 and len(task.test) == 30
    assert len(task.tune) + len(task.choose) == 30
    kept = names(every_problem(task))
    for pair in task.decontaminated:
        assert pair["problem"] not in kept and pair["other_problem"] in kept


def test_an_offline_program_is_what_the_judge_will_extract(tmp_path):
    file = write(tmp_path / "rows.jsonl", [taco_row(0)])
    task = open_task(config("taco", file))
    (problem,) = every_problem(task)
    response = task.response(problem.solutions[0])
    assert "in one ```python block" in task.prompt(problem) and response.startswith("```python\n")
    assert extract_program(response) == "print(input())"


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("taco", {"path": None}, ["task.path", "hf://datasets/"]),
        ("taco", {"path": "/nowhere.jsonl"}, ["task.path=/nowhere.jsonl", "no such file"]),
        ("paper", {"path": __file__}, [__file__, ".jsonl"]),
        ("taco", {"rows": None}, ["conf/task/taco.yaml", "rows", "make"]),
        ("taco", {"rows": "envs.tasks.loaders.taco.problems"}, ["task.rows=", "it has problem"]),
        ("taco", {"rows": "envs.tasks.atco.problem"}, ["task.rows=", "no module envs.tasks.atco"]),
        ("taco", {"rows": "problem"}, ["task.rows=problem", "package.module.function"]),
        ("paper", {"test_rows": "envs.no.f"}, ["task.test_rows=envs.no.f", "no module envs.no"]),
    ],
)
def test_mistakes_name_the_key(name, changed, said):
    with pytest.raises(ValueError) as error:
        open_task(config(name, **{"path": __file__} | changed))
    assert all(word in str(error.value) for word in said)
    assert "\n" not in str(error.value)


def mbpp_row(number):
    asserts = [f"assert plus({i}) == {i + number}" for i in range(3)]
    return {"task_id": number, "text": f"Add {number} to x.", "code": "", "test_list": asserts}


def test_one_file_of_mbpp_has_its_published_splits(tmp_path):
    numbers = (1, 10, 11, 510, 511, 600, 601, 974)
    rows = [mbpp_row(number) for number in numbers]
    file = write(tmp_path / "mbpp.jsonl", rows)
    task = open_task(config("mbpp", file, decontaminate=False))
    assert names(task.train) == {"mbpp/601", "mbpp/974"}
    assert names(task.test) == {"mbpp/11", "mbpp/510"}
    assert names([*task.tune, *task.choose]) == {"mbpp/511", "mbpp/600"}
    assert task.left_out["stands in no published split"] == 2
    by_hash = open_task(config("mbpp", file, decontaminate=False, split_of=None))
    assert len(every_problem(by_hash)) == len(numbers)


def odd_split(name):
    return "dev"


def test_an_unknown_published_split_is_refused_by_name(tmp_path):
    file = write(tmp_path / "mbpp.jsonl", [mbpp_row(11)])
    with pytest.raises(ValueError, match=r"task\.split_of=.*returned 'dev' for mbpp/11"):
        open_task(config("mbpp", file, split_of=f"{__name__}.odd_split"))
