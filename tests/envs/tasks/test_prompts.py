"""What a model is asked: the statement, samples once, starter code where there is some."""

from dataclasses import replace

import pytest

from envs.problem import Problem, Test
from envs.tasks import open_task
from envs.tasks.prompts import DefaultPrompt, PromptTemplate
from envs.tasks.task_cli import task_config
from tests.envs.tasks.dataset_rows import config, every_problem, taco_row, write

SAMPLE = Test("3 4\n", "7\n")


COUNTED = "Given an integer n at least 1, output the sum of all numbers from 1 to n."


@pytest.mark.parametrize(
    ("statement", "sample", "left_out"),
    [
        (COUNTED, ("1\n", "1\n"), False),
        ("Add 3 4 to get 7.", ("3 4", "7"), False),
        ("Add.\n```\n 3  4\n```\nOutput:\n```\n7\n```", ("3 4\n", "7\n"), True),
        ("Add.\n\n1\n3 4\n\ngives\n\n7", ("1\n3 4\n", "7\n"), True),
        ("Add.\n3 4\n\n8", ("3 4", "7"), False),
        ("Print five.\n\n5", ("", "5\n"), True),
    ],
)
def test_own_samples_are_left_out_only_if_the_statement_shows_them(statement, sample, left_out):
    """Numbers of a sentence that equal a sample's are no example."""
    tests = (Test(*sample),)
    text = DefaultPrompt(own=True)(Problem("p", statement, tests, tests))
    assert ("Sample input 1:" not in text) == left_out


@pytest.mark.parametrize(
    ("statement", "left_out"),
    [
        ("Write f for [1, 2] and 'ab', which is True.", False),
        (">>> f([1, 2], 'ab')\nTrue", True),
        ('Input: xs = [1,2], s = "ab"\nOutput: true', True),
        ("assert f([1, 2], 'ab') == False", False),
    ],
)
def test_own_samples_of_a_function_are_shown_as_calls(statement, left_out):
    tests = (Test('[[1, 2], "ab"]', "true"), Test('[[], "\\n"]', "null"))
    one = Problem("p", statement, tests[:1], tests, "call", fn_name="f")
    shown = "Sample calls and their results:\n```\nf([1, 2], 'ab') → True\n```\n\nThe function is"
    assert (shown not in DefaultPrompt(own=True)(one)) == left_out
    both = DefaultPrompt(own=True)(replace(one, samples=tests))
    assert "f([1, 2], 'ab') → True\nf([], '\\n') → None\n```" in both
    assert DefaultPrompt()(one) == DefaultPrompt()(replace(one, samples=()))  # as earlier runs


def test_rows_that_name_samples_have_the_rule_for_own_rows(tmp_path):
    """The prompts and data hashes of published data sets stay, those of own samples are others."""
    row = {"q": COUNTED, "in": ["1", "2", "3"], "out": ["1", "3", "6"], "si": ["1"], "so": ["1"]}
    rows = [row, {"q": "Add.", "in": [[1, 2]], "out": [3], "f": "add", "si": [[0, 1]], "so": [1]}]
    path = write(tmp_path / "rows.jsonl", rows)
    given = ["task=own", f"task.path={path}", "task.fields.statement=q", "task.fields.inputs=in"]
    given += ["task.fields.outputs=out", "task.fields.fn_name=f", "task.min_hidden_tests=0"]
    named = [*given, "task.fields.sample_inputs=si", "task.fields.sample_outputs=so"]
    plain, own = open_task(task_config(given)), open_task(task_config(named))
    text = "\n".join(map(own.prompt, every_problem(own)))
    assert "Sample input 1:\n```\n1\n```" in text and "add(0, 1) → 1" in text
    assert plain.prompt_digest == DefaultPrompt().digest != own.prompt_digest


def test_a_call_based_problem_names_its_function_and_brings_its_code():
    tests = (Test("[1]", "1"),)
    code = "class Solution:\n    def same(self, x):\n"
    text = DefaultPrompt()(
        Problem("p", "Return {{ x }}.", (), tests, "call", fn_name="same", starter_code=code)
    )
    assert "`same`" in text and f"```python\n{code}```" in text
    assert "Return {{ x }}." in text  # a statement is text, never a template
    assert "standard input" not in text


@pytest.fixture
def template(tmp_path):
    def made(text):
        file = tmp_path / "mine.jinja"
        file.write_text(text)
        return file

    return made


def test_a_template_of_ones_own_is_told_all_that_a_problem_has(template):
    text = "{{ statement }}|{{ samples|length }}|{{ fn_name }}|{{ starter_code }}|"
    text += "{{ calls|length }}"
    assert all(name in text for name in PromptTemplate.variables)
    problem = Problem("p", " Add. \n", (SAMPLE,), (SAMPLE,), fn_name="add", starter_code="x")
    assert PromptTemplate(template(text))(problem) == "Add.|1|add|x|1"


@pytest.mark.parametrize("name", ["mini", "sums", "taco"])
def test_every_task_takes_one_and_its_data_are_others_with_it(template, tmp_path, name):
    given = {"path": write(tmp_path / "rows.jsonl", [taco_row(i) for i in range(20)])}
    sizes = {"train_problems": 4, "tune_problems": 2, "choose_problems": 4, "test_problems": 4}
    plain, one, other = (
        open_task(config(name, **given, **sizes, prompt=prompt and str(template(prompt))))
        for prompt in (None, "Do: {{ statement }}", "Do it: {{ statement }}")
    )
    for problem in one.train:
        assert one.prompt(problem) == f"Do: {problem.statement.strip()}"
    assert len({task.data_hash for task in (plain, one, other)}) == 3
    assert len({task.prompt_digest for task in (plain, one, other)}) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ statment }}", ["there is no 'statment'", "statement, samples, fn_name"]),
        ("line\n{% for x in samples %}", ["line 2: ", "endfor"]),
        ("{{ statement|shout }}", ["line 1: ", "shout"]),
    ],
)
def test_a_fault_in_a_template_is_one_line_before_anything_is_read(template, text, said):
    file = template(text)
    with pytest.raises(ValueError) as error:
        open_task(config("mini", None, prompt=str(file)))
    assert str(error.value).startswith(f"task.prompt={file}")
    assert all(word in str(error.value) for word in said) and "\n" not in str(error.value)


def test_examples_are_answered_as_the_task_asks_for_answers(tmp_path):
    """In the block that a prompt asks for; bare where the model writes nothing else."""
    path = write(tmp_path / "rows.jsonl", [taco_row(i) for i in range(30)])
    sizes = {"train_problems": 20, "tune_problems": 2, "choose_problems": 2, "test_problems": 2}
    shown = {
        name: open_task(config(name, path, few_shot=2, **sizes))
        for name in ("taco", "mini", "sums")
    }
    answers = {name: [answer for _, answer in task.shots()] for name, task in shown.items()}
    assert answers["taco"] == ["```python\nprint(input())\n```"] * 2
    assert answers["mini"] == [min(p.solutions, key=len) for p in shown["mini"].examples]
    assert all(answer.isdigit() for answer in answers["sums"])
