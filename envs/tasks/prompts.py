"""What a model reads: the prompt of a problem, and feedback after a failed answer.

The default templates are in conf/prompt/; `task.prompt` and `task.feedback_prompt` name others.

A failed answer is run on the problem's public tests, those that its statement shows. The hidden
tests never reach a model. The words are in the manner of RLEF (2410.02089), which names every
failed test: the first that failed, its input, the expected output, the program's output or its
error.

What a program printed is untrusted. Each text is bounded, its control characters are shown as code
points, and it stands in a fence that it cannot close. Tokens of a chat template in it are left as
they are, so whoever encodes an observation must not take them for special tokens.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from envs.judge.checkers import comparable
from envs.messages import readable, shortened
from envs.problem import Judgement, Problem, Verdict
from envs.tasks.stored import StoredProblems
from envs.tasks.strength import python_texts, shown_tests, stands_as_example
from envs.tasks.task import Task

TEMPLATES = Path(__file__).resolve().parents[2] / "conf" / "prompt"
FEW_SHOT_CANDIDATES = 200  # from the front of train, whose order depends on statements alone


class Template:
    """A Jinja template in a file, of which the variables are known."""

    subject = ""  # what has the variables, in words
    variables: tuple[str, ...] = ()

    def __init__(self, path: Path, key: str = "") -> None:
        """Read and check the template. `key`: the configuration key that names it.

        A relative path that does not exist here is one below this repository. Raises ValueError in
        one line: no such file, a syntax error, or an unknown variable.
        """
        import jinja2
        import jinja2.meta

        self.where = f"{key}={path}" if key else str(path)
        file, bundled = path.expanduser(), TEMPLATES.parents[1] / path
        file = bundled if not file.exists() and bundled.exists() else file
        environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
        try:
            self.text = file.read_text(encoding="utf-8")
            tree = environment.parse(self.text)
            self._template = environment.from_string(self.text)  # some errors show only here
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ValueError(f"{self.where}: {reason}") from error
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"{self.where}, line {error.lineno}: {error.message}") from error
        unknown = sorted(jinja2.meta.find_undeclared_variables(tree) - set(self.variables))
        if unknown:
            listed = ", ".join(self.variables)
            raise ValueError(
                f"{self.where}: there is no {unknown[0]!r}; {self.subject} has {listed}"
            )

    def render(self, values: Mapping[str, object], problem: Problem) -> str:
        """Fill in the variables. Raises ValueError if the template fails for this problem."""
        try:
            return self._template.render(values)
        except Exception as error:
            # a template may call anything
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ValueError(f"{self.where}: for {problem.name}, {reason}") from error

    @property
    def digest(self) -> str:
        """16 hex digits over the template."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


class PromptTemplate(Template):
    """The user message of a problem. Samples that the statement shows itself are left out.

    `own`: the rows are the user's own, and their samples are left out only if that they stand in
    the statement is no coincidence. The published data sets keep the rule of earlier runs.
    """

    subject = "a problem"
    # calls: of a function, each sample as "name(arguments) → result"
    variables = ("statement", "samples", "fn_name", "starter_code", "calls")

    def __init__(self, path: Path, key: str = "", *, own: bool = False) -> None:
        """Raises as Template."""
        super().__init__(path, key)
        self.own = own

    def __call__(self, problem: Problem) -> str:
        """Render the prompt. Raises ValueError if the template fails for this problem."""
        if self.own:
            shown = all(stands_as_example(problem, test) for test in problem.samples)
        else:
            words = " ".join(problem.statement.split())
            shown = all(" ".join(test.input.split()) in words for test in problem.samples)
        samples = () if shown else problem.samples
        calls = [" → ".join(python_texts(problem, test)) for test in samples if problem.fn_name]
        values: dict[str, object] = {
            "statement": problem.statement.strip(),
            "samples": samples,
            "fn_name": problem.fn_name,
            "starter_code": problem.starter_code,
            "calls": calls,
        }
        return self.render(values, problem)

    @property
    def digest(self) -> str:
        """16 hex digits over the template and its rule on samples."""
        text = f"{self.text}\nown samples" if self.own else self.text
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class DefaultPrompt:
    """The default templates: one for programs that read stdin, one for functions.

    `own`: the rows are the user's own (see PromptTemplate), and samples of functions are shown.
    """

    def __init__(self, *, own: bool = False) -> None:
        call = "call_with_samples.jinja" if own else "call.jinja"
        self.stdin = PromptTemplate(TEMPLATES / "stdin.jinja", own=own)
        self.call = PromptTemplate(TEMPLATES / call, own=own)

    def __call__(self, problem: Problem) -> str:
        return (self.call if problem.fn_name else self.stdin)(problem)

    @property
    def digest(self) -> str:
        """16 hex digits over both templates."""
        return hashlib.sha256((self.stdin.digest + self.call.digest).encode()).hexdigest()[:16]


def with_few_shot(task: Task, count: int) -> Task:
    """Return the task with `count` examples, taken out of its train split.

    Examples are the candidates with the shortest prompt and right program. They are the same for
    every problem and seed. Raises ValueError if too few candidates have a right program.
    """
    sizes = {
        index: len(task.prompt(problem)) + min(map(len, problem.solutions))
        for index, problem in enumerate(task.train[:FEW_SHOT_CANDIDATES])
        if problem.solutions
    }
    if len(sizes) < count:
        raise ValueError(
            f"task.few_shot={count}: only {len(sizes)} of the first {FEW_SHOT_CANDIDATES} problems "
            "to train on have a right program"
        )
    chosen = sorted(sorted(sizes, key=sizes.__getitem__)[:count])
    rest = [index for index in range(len(task.train)) if index not in chosen]
    train: Sequence[Problem] = task.train
    examples = [train[index] for index in chosen]
    if isinstance(train, StoredProblems):
        train = StoredProblems([train.entries[index] for index in rest])
    else:
        train = [train[index] for index in rest]
    return replace(task, train=train, examples=examples)


Kind = Literal["tests", "withheld", "foreign"]

MAX_PIECE_CHARS = 300  # of each text that an observation quotes
KEPT_PROBLEMS = 1000  # whose public tests are kept in memory
NO_PROGRAM, WITHHELD = "NO_PROGRAM", "WITHHELD"  # failures that are no verdict

_AT_LINE = re.compile(r"line ([0-9]{1,9}): ")
_LINE_END = re.compile(r"\r\n|\r|\n")
_BACKTICKS = re.compile("`+")


def public_problem(problem: Problem) -> Problem | None:
    """Return the problem with its public tests alone, or None if it has none.

    They are its samples, or where its data set marks none, the tests that its statement shows. They
    run in their order. Its name and hash are other than the problem's, so that no cache mixes up
    their verdicts.
    """
    tests = problem.samples or tuple(shown_tests(problem))
    tests = tuple(test for test in tests if comparable(problem.checker, test.output))
    if not tests:
        return None
    return replace(
        problem,
        name=f"{problem.name}/public",
        samples=tests,
        tests=tests,
        generated_tests=0,
        solutions=(),
        incorrect_solutions=(),
        in_order=True,
    )


class Feedback(Template):
    """Makes public problems, and observations from their judgements."""

    subject = "feedback"
    # failure: a verdict, NO_PROGRAM or WITHHELD; sample: the number of the failed one, from 1;
    # fn_name: of the problem; input, expected, output, error: texts in fences, "" for none;
    # one_of_several: `expected` is one accepted output of several
    variables = (
        *("failure", "sample", "fn_name", "input", "expected", "output", "error"),
        "one_of_several",
    )

    def __init__(self, kind: Kind, template: Path | None = None) -> None:
        """`kind`: `tests`; `withheld`, which says only that an answer is wrong; or `foreign`.

        `foreign` is `tests` about another problem, which the caller passes with a judgement of its
        public tests. Raises as Template.
        """
        key = "task.feedback_prompt" if template else ""
        super().__init__(template or TEMPLATES / "feedback.jinja", key)
        self.kind = kind
        self._public: dict[object, Problem | None] = {}

    def public(self, problem: Problem) -> Problem | None:
        """Return `public_problem(problem)`, which is kept; a public problem returns itself."""
        if problem.in_order:
            return problem
        key = problem.name, problem.hash, problem.statement, problem.samples
        if key not in self._public:
            if len(self._public) >= KEPT_PROBLEMS:
                del self._public[next(iter(self._public))]
            self._public[key] = public_problem(problem)
        return self._public[key]

    def observation(
        self, problem: Problem, judgement: Judgement, piece_chars: int = MAX_PIECE_CHARS
    ) -> str:
        """Return what the model reads after an answer that failed.

        `judgement` is that of `public(problem)`; each quoted text has at most `piece_chars`
        characters. The observation depends on the public problem and the program alone. Raises
        ValueError for a judgement of other tests, one without a failed test (accepted, or a failure
        of the judge), and if the template fails.
        """
        values: dict[str, object] = dict.fromkeys(self.variables, "")
        values |= {"failure": WITHHELD, "sample": None, "fn_name": problem.fn_name}
        values |= {"one_of_several": problem.checker_program is not None}
        if judgement.verdict in (Verdict.ACCEPTED, Verdict.INFRA_ERROR):
            raise ValueError(f"{problem.name}: no feedback on a judgement of {judgement.verdict}")
        if self.kind != "withheld":
            values |= self._failure(problem, judgement, lambda text: _fenced(text, piece_chars))
        return self.render(values, problem)

    def _failure(
        self, problem: Problem, judgement: Judgement, fenced: Callable[[str], str]
    ) -> dict[str, object]:
        public = self.public(problem)
        if public is None or judgement.problem_hash != public.hash:
            raise ValueError(f"{problem.name}: feedback needs a judgement of its public tests")
        if not judgement.program:
            return {"failure": NO_PROGRAM}
        values: dict[str, object] = {
            "failure": judgement.verdict.value,
            "error": fenced(_error(judgement)),
        }
        if judgement.failed_test is None:  # it does not compile
            return values
        test = public.tests[judgement.failed_test]
        given, expected = python_texts(public, test)
        return values | {
            "sample": judgement.failed_test + 1,
            "input": fenced(given),
            "expected": fenced(expected),
            "output": fenced(judgement.output),
        }


def _error(judgement: Judgement) -> str:
    """Return the exception behind the line of the program that raised it."""
    found = _AT_LINE.match(judgement.exception)
    if not found:
        return judgement.exception
    lines = _LINE_END.split(judgement.program)
    number = int(found[1])
    source = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    message = judgement.exception[found.end() :]
    return f"line {number}: {_bounded(source, MAX_PIECE_CHARS // 2)}\n{message}"


def _fenced(text: str, most: int) -> str:
    """Return a text in a fence that is longer than any in it; "" for an empty one."""
    text = _bounded(text.strip("\n"), most)
    if not text.strip():
        return ""
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _bounded(text: str, most: int) -> str:
    """Return at most `most` readable characters of a text; of a longer one the middle is left out.

    A long text is cut before it is made readable, which only adds characters.
    """
    if len(text) > 2 * most:
        text = f"{text[:most]}…{text[-most:]}"
    return shortened(readable(text), most)
