"""Data sets as tasks: splits, keys that choose problems, what is left out, parts, duplicates."""

import json

import pytest

from envs.tasks import open_task
from envs.tasks.stored import statement_hash
from envs.tasks.task import SPLITS, FilesConfig, FilterConfig, TaskConfig
from experiments.config.composition import config_of
from experiments.errors import UserError
from tests.envs.tasks.contest_rows import codeforces, livecodebench
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
    reasons = ["input_output is not JSON", "needs a checker of its own", "no statement", "no tests"]
    assert task.left_out == dict.fromkeys(reasons, 1)
    kept = len(every_problem(task))
    assert kept + task.left_out.total() == task.rows_read


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


def test_a_problem_stays_in_the_last_of_the_splits_that_have_it(tmp_path):
    def reworded(number):
        return taco_row(number, question=statement(number).replace("Given", "You have").upper())

    rows = [taco_row(i) for i in range(90)]
    write(tmp_path / "train-0.jsonl", rows[:30] + [reworded(i) for i in range(30, 50)])
    write(tmp_path / "valid-0.jsonl", rows[30:60] + [reworded(i) for i in range(60, 80)])
    write(tmp_path / "test-0.jsonl", rows[60:])
    task = open_task(config("taco", str(tmp_path)))
    found = {(pair["split"], pair["other_split"]) for pair in task.decontaminated}
    assert found == {("train", "tune"), ("train", "choose"), ("tune", "test"), ("choose", "test")}
    assert len(task.train) == 30 and len(task.test) == 30
    assert len(task.tune) + len(task.choose) == 30
    kept = names(every_problem(task))
    for pair in task.decontaminated:
        assert pair["problem"] not in kept and pair["other_problem"] in kept


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("taco", {"path": None}, ["task.path", "hf://datasets/"]),
        ("taco", {"path": "/nowhere.jsonl"}, ["task.path=/nowhere.jsonl", "no such file"]),
        ("paper", {"path": __file__}, [__file__, ".jsonl"]),
        ("taco", {"rows": None}, ["conf/task/taco.yaml", "rows", "make"]),
        ("taco", {"rows": "envs.tasks.loaders.contests.problems"}, ["has no function problems"]),
        ("taco", {"rows": "envs.tasks.atco.problem"}, ["task.rows=", "No module named"]),
        ("taco", {"rows": "problem"}, ["task.rows=problem", "package.module.function"]),
        ("paper", {"test_rows": "envs.no.f"}, ["task.test_rows=envs.no.f", "No module named"]),
    ],
)
def test_mistakes_name_the_key(name, changed, said):
    with pytest.raises(ValueError) as error:
        open_task(config(name, **{"path": __file__} | changed))
    assert all(word in str(error.value) for word in said)
    assert "\n" not in str(error.value)


# Keys that choose problems.


@pytest.fixture
def rated(tmp_path):
    ratings = [800 + 100 * (i % 10) for i in range(30)]
    ratings[:3] = None, 0, None
    rows = [codeforces(i, rating=rating) for i, rating in enumerate(ratings)]
    rows[5] |= {"generated_checker": "print(1)"}
    return "codeforces", write(tmp_path / "rated.jsonl", rows)


@pytest.fixture
def dated(tmp_path):
    rows = [livecodebench(i) for i in range(24)] + [livecodebench(24, contest_date=None)]
    return "livecodebench", write(tmp_path / "dated.jsonl", rows)


@pytest.fixture
def plain(tmp_path):
    rows = [taco_row(i, source="codechef" if i % 2 else "aizu") for i in range(30)]
    return "taco", write(tmp_path / "plain.jsonl", [row | {"tags": "['Math']"} for row in rows])


@pytest.mark.parametrize(
    ("rows", "keys", "kept", "left_out"),
    [
        ("rated", {}, 30, {}),
        ("rated", {"max_rating": 1000}, 6, {"no rating, which task.max_rating reads": 3}),
        ("rated", {"min_rating": 1700}, 3, {"not of task.min_rating": 24}),
        ("rated", {"min_rating": 900, "max_rating": 900}, 2, {"not of task.max_rating": 23}),
        ("rated", {"checkers": False}, 29, {"has a checker program (task.checkers=false)": 1}),
        ("dated", {"date_from": "2024-12-15"}, 2, {}),  # both days count
        ("dated", {"date_from": "2024-12-16"}, 0, {"no date, which task.from reads": 1}),
        ("dated", {"date_to": "2024-01-15"}, 2, {}),
        ("dated", {"date_from": "2024-02-01", "date_to": "2024-03-31"}, 4, {}),
        ("dated", {"difficulty": ["Easy"]}, 9, {"not of task.difficulty": 16}),
        ("dated", {"difficulty": ["easy", "HARD"], "date_to": "2024-12-31"}, 16, {}),
        ("plain", {"filter": FilterConfig(source=["Aizu"])}, 15, {"not of task.filter.source": 15}),
        ("plain", {"filter": FilterConfig(tags=["math", "graphs"])}, 30, {}),
    ],
)
def test_keys_choose_problems(request, rows, keys, kept, left_out):
    task = open_task(config(*request.getfixturevalue(rows), **keys))
    assert len(every_problem(task)) == kept and left_out.items() <= task.left_out.items()
    assert kept + task.left_out.total() == task.rows_read


@pytest.mark.parametrize(
    ("rows", "keys", "said"),
    [
        ("plain", {"max_rating": 1200}, "task.max_rating=1200: no row of task=taco has a rating"),
        ("plain", {"date_to": "2024-01-01"}, "task.to=2024-01-01: no row of task=taco has a date"),
        ("rated", {"difficulty": ["EASY"]}, "task=codeforces has a difficulty; leave the key out"),
        ("plain", {"min_rating": 5, "max_rating": 4}, "nothing lies between; swap the two"),
        ("dated", {"date_from": "2024-02-01", "date_to": "2024-01-01"}, "task.to=2024-01-01: noth"),
        ("dated", {"difficulty": ["EASY", "hart"]}, "task.difficulty=hart: no row of task=live"),
        ("dated", {"difficulty": ["hart"]}, "nearest of its difficulties: hard, easy, medium"),
    ],
)
def test_a_key_that_no_row_can_answer_is_refused(request, rows, keys, said):
    with pytest.raises(ValueError) as error:
        open_task(config(*request.getfixturevalue(rows), **keys))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_quality_table_keeps_what_it_calls_good(plain, tmp_path):
    problems = every_problem(open_task(config(*plain)))
    table = tmp_path / "quality.csv"
    hashes = sorted(statement_hash(problem.statement) for problem in problems)
    for good, kept in (("true", 30), ("false", 0)):
        table.write_text("statement,good\n" + "".join(f"{each},{good}\n" for each in hashes))
        task = open_task(config(*plain, quality=str(table)))
        assert len(every_problem(task)) == kept
        assert task.left_out["not good by task.quality"] == 30 - kept


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.csv", None, "no such file"),
        ("quality.txt", "x", ".parquet or .csv"),
        ("quality.csv", "a,b\n1,2\n", "not a file of envs.validate"),
        ("quality.parquet", "not parquet", "not a file of envs.validate"),
    ],
)
def test_a_quality_table_that_is_none_is_refused(plain, tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError) as error:
        open_task(config(*plain, quality=str(tmp_path / name)))
    assert f"task.quality={tmp_path / name}" in str(error.value) and said in str(error.value)


# Data sets for evaluation only.


def test_no_run_trains_on_a_data_set_for_evaluation(tmp_path, dated):
    with pytest.raises(UserError, match="it is for evaluation only"):
        config_of(["task=livecodebench", "steps=2"])
    write(tmp_path / "train-0.jsonl", [livecodebench(i) for i in range(4)])
    write(tmp_path / "test-0.jsonl", [livecodebench(i) for i in range(4, 6)])
    with pytest.raises(ValueError, match=r"evaluation only .* holds its train split"):
        open_task(config("livecodebench", str(tmp_path), files=FilesConfig()))
    task = open_task(config(*dated))
    assert [len(split) for split in task.splits().values()] == [0, 0, 0, 25]


# Several data sets as one task.


def joined(*parts, **changed):
    return TaskConfig(name="joined", parts=list(parts), **changed)


def test_parts_are_joined_split_by_split_with_keys_of_their_own(tmp_path):
    taco = [taco_row(i, difficulty="EASY" if i % 2 else "HARD") for i in range(100)]
    contests = [code_contests_row(i, f"contest {i}") for i in range(100, 140)]
    parts = (
        f"taco path={write(tmp_path / 'taco.jsonl', taco)} difficulty=[EASY]",
        f"code_contests path='{write(tmp_path / 'contests.jsonl', contests)}'",
    )
    task = open_task(joined(*parts))
    alone = [open_task(joined(part)) for part in parts]
    assert len(alone[0].train) > 20 and len(alone[1].train) > 10
    for split in SPLITS:
        each = [names(getattr(one, split)) for one in alone]
        assert names(getattr(task, split)) == each[0] | each[1]
    assert task.rows_read == 140 and task.left_out["not of task.difficulty"] == 50
    assert task.data_hash != alone[0].data_hash
    with pytest.raises(ValueError, match="are in several parts of task=joined"):
        open_task(joined(parts[0], parts[0], decontaminate=False))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (["tacoo"], r"task.parts\[0\]=tacoo: task=tacoo: .*did you mean 'taco'"),
        (["taco pth=x"], r"task.parts\[0\]=taco pth=x: "),
        (["mini"], "task=mini has no rows; a part is a data set"),
        (["taco path='x"], r"task.parts\[0\]=taco path='x: No closing quotation"),
        ([""], r"task.parts\[0\]="),
    ],
)
def test_a_wrong_part_is_named(parts, message):
    with pytest.raises(ValueError, match=message):
        open_task(joined(*parts))
