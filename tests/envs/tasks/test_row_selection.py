"""The keys that choose problems by difficulty, rating and date; data sets for evaluation only."""

import pytest
from envs.tasks.row_selection import check_difficulties

from envs.tasks import open_task
from envs.tasks.rows import remote_files
from envs.tasks.task_cli import task_config
from experiments.config.composition import config_of
from experiments.errors import UserError
from tests.envs.tasks.contest_rows import codeforces, livecodebench, taco_verified
from tests.envs.tasks.dataset_rows import config, every_problem, taco_row, write


@pytest.fixture
def rated(tmp_path):
    ratings = [800 + 100 * (i % 10) for i in range(30)]
    ratings[:3] = None, 0, None
    rows = [codeforces(i, rating=rating) for i, rating in enumerate(ratings)]
    return write(tmp_path / "rated.jsonl", rows)


@pytest.fixture
def dated(tmp_path):
    rows = [livecodebench(i) for i in range(24)] + [livecodebench(24, contest_date=None)]
    return write(tmp_path / "dated.jsonl", rows)


@pytest.mark.parametrize(
    ("keys", "kept", "left_out"),
    [
        ({}, 30, {}),
        (
            {"max_rating": 1000},
            6,
            {"no rating, which task.max_rating reads": 3, "not of task.max_rating": 21},
        ),
        (
            {"min_rating": 1700},
            3,
            {"no rating, which task.min_rating reads": 3, "not of task.min_rating": 24},
        ),
        (
            {"min_rating": 900, "max_rating": 900},
            2,
            {
                "no rating, which task.min_rating reads": 3,
                "not of task.min_rating": 2,
                "not of task.max_rating": 23,
            },
        ),
    ],
)
def test_ratings(rated, keys, kept, left_out):
    task = open_task(config("codeforces", rated, **keys))
    assert len(every_problem(task)) == kept and task.left_out == left_out
    bounds = keys.get("min_rating", 0), keys.get("max_rating", 9999)
    assert all(bounds[0] <= (p.rating or 0) <= bounds[1] for p in every_problem(task))


@pytest.mark.parametrize(
    ("keys", "kept"),
    [
        ({"date_from": "2024-12-15"}, 2),  # both days count
        ({"date_from": "2024-12-16"}, 0),
        ({"date_to": "2024-01-15"}, 2),
        ({"date_from": "2024-02-01", "date_to": "2024-03-31"}, 4),
        ({"difficulty": ["Easy"]}, 9),
        ({"difficulty": ["easy", "HARD"], "date_to": "2024-12-31"}, 16),
    ],
)
def test_dates_and_difficulties(dated, keys, kept):
    task = open_task(config("livecodebench", dated, **keys))
    assert len(task.test) == kept and kept + task.left_out.total() == 25


def test_a_key_that_no_row_can_answer_is_refused(tmp_path, rated):
    plain = write(tmp_path / "plain.jsonl", [taco_row(i) for i in range(3)])
    for name, file, keys, said in (
        ("taco", plain, {"max_rating": 1200}, "task.max_rating=1200: no row of task=taco has a ra"),
        ("taco", plain, {"date_to": "2024-01-01"}, "task.to=2024-01-01: no row of task=taco has a"),
        (
            "codeforces",
            rated,
            {"difficulty": ["EASY", "HARD"]},
            "task.difficulty=EASY,HARD: no ro",
        ),
        ("taco", plain, {"min_rating": 5, "max_rating": 4}, "task.min_rating=5 with task.max_rat"),
        (
            "taco",
            plain,
            {"date_from": "2024-02-01", "date_to": "2024-01-01"},
            "task.from=2024-02-01 with task.to=2024-01-01: nothing lies between",
        ),
    ):
        with pytest.raises(ValueError) as error:
            open_task(config(name, file, **keys))
        assert said in str(error.value) and "\n" not in str(error.value)


def test_a_difficulty_that_no_row_has_is_refused_and_the_nearest_are_named(dated):
    with pytest.raises(ValueError) as error:
        open_task(config("livecodebench", dated, difficulty=["EASY", "hart"]))
    said = "task.difficulty=hart: no row of task=livecodebench has it; the nearest of its "
    assert str(error.value) == f"{said}difficulties: hard, easy, medium"


def test_of_many_difficulties_a_few_are_named():
    known = [f"level {number}" for number in range(9)]
    with pytest.raises(ValueError, match=r"difficulties: level 7(, level \d){5} and 3 more$"):
        check_difficulties("own", ["LEVEL 3", "level 77"], known)


def test_the_command_line_has_the_keys():
    keys = ["task=livecodebench", "task.from=2024-08-01", "task.to=2025-01-31"]
    chosen = task_config([*keys, "task.difficulty=hard"])
    assert (chosen.date_from, chosen.date_to) == ("2024-08-01", "2025-01-31")
    assert chosen.difficulty == ["hard"]
    assert task_config(["task=taco", "task.difficulty=[EASY,7]"]).difficulty == ["EASY", "7"]
    run = config_of([*keys, "steps=0", "eval.split=test", "task.max_rating=1200"])
    assert (run.task.date_from, run.task.max_rating) == ("2024-08-01", 1200)
    for argument, said in {
        "task.from=2024-8-1": "task.from='2024-8-1'; write a date as YYYY-MM-DD",
        "task.max_rating=many": "task.max_rating='many'; it takes a whole number",
        "task.date_from=2024-08-01": "unknown key 'task.date_from'; did you mean 'task.from'? keys",
    }.items():
        with pytest.raises(ValueError) as error:
            task_config(["task=livecodebench", argument])
        assert str(error.value).startswith(said)
    with pytest.raises(ValueError, match=r"task\.max_rating means nothing to this task"):
        task_config(["task=mini", "task.max_rating=1200"])


def test_a_recorded_window_is_read_again(tmp_path):
    """config.yaml of a run holds the fields' own names."""
    from dataclasses import asdict

    from omegaconf import OmegaConf

    from experiments.config.resume import resumed_config

    run = config_of(["task=livecodebench", "task.from=2024-08-01", "steps=0", "eval.split=test"])
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(asdict(run)))
    (tmp_path / "run.json").write_text("{}")
    assert resumed_config(tmp_path, []).task.date_from == "2024-08-01"


def test_no_run_trains_on_a_data_set_for_evaluation(tmp_path):
    with pytest.raises(UserError) as error:
        config_of(["task=livecodebench", "steps=2"])
    assert str(error.value).startswith(
        "task=livecodebench with steps=2: it is for evaluation only (models are compared on it"
    )
    write(tmp_path / "train-0.jsonl", [livecodebench(i) for i in range(4)])
    write(tmp_path / "test-0.jsonl", [livecodebench(i) for i in range(4, 6)])
    layout = config("taco", None).files
    with pytest.raises(ValueError, match=r"evaluation only .* holds its train split"):
        open_task(config("livecodebench", str(tmp_path), files=layout))


def test_a_file_for_evaluation_is_the_test_split(dated):
    task = open_task(config("livecodebench", dated))
    assert [len(split) for split in task.splits().values()] == [0, 0, 0, 25]


def test_a_release_is_a_set_of_files(tmp_path):
    for number, name in enumerate(("test", *(f"test{i}" for i in range(2, 7)))):
        write(tmp_path / f"{name}.jsonl", [livecodebench(number)])
    for name, count in (("livecodebench", 6), ("livecodebench_v5", 5)):
        task = open_task(config(name, str(tmp_path)))
        names = {problem.name.partition("@")[0] for problem in task.test}
        assert len(names) == count and ("livecodebench/abc5_a" in names) == (count == 6)
        url = f"file://{tmp_path}/{config(name, None).files.test}"
        assert len(remote_files(url)[1]) == count


def test_the_date_of_another_data_set(tmp_path):
    rows = [taco_verified(i, date=f"201{i}-01-01") for i in range(8)]
    task = open_task(
        config("taco_verified", write(tmp_path / "r.jsonl", rows), date_to="2015-06-01")
    )
    assert len(every_problem(task)) == 6
