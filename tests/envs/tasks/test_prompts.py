"""What a model is asked: the statement, samples once, starter code where there is some."""

from envs.problem import Problem, Test
from envs.tasks.prompts import contest_prompt

SAMPLE = Test("3 4\n", "7\n")


def test_samples_that_the_statement_lacks_are_shown():
    text = contest_prompt(Problem("p", "Print a + b.", (SAMPLE,), (SAMPLE,)))
    assert "standard input" in text and "Print a + b." in text
    assert "Sample input 1:\n```\n3 4\n```\nSample output 1:\n```\n7\n```" in text
    assert text.endswith("```python block.")


def test_samples_that_the_statement_shows_are_not_shown_again():
    statement = "Print a + b.\n\nInput\n\n3 4\n\nOutput\n\n7"
    text = contest_prompt(Problem("p", statement, (SAMPLE,), (SAMPLE,)))
    assert text.count("3 4") == 1


def test_a_call_based_problem_names_its_function_and_brings_its_code():
    tests = (Test("[1]", "1"),)
    code = "class Solution:\n    def same(self, x):\n"
    text = contest_prompt(
        Problem("p", "Return {{ x }}.", (), tests, "call", fn_name="same", starter_code=code)
    )
    assert "`same`" in text and f"```python\n{code}```" in text
    assert "Return {{ x }}." in text  # a statement is text, never a template
    assert "standard input" not in text
