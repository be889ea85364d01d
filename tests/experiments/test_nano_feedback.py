"""The nano model that has seen feedback: its corpus of conversations, and the bundled files."""

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from transformers import AutoTokenizer

from envs.environment import Submission
from envs.feedback import Feedback
from envs.judge.extract import as_response
from envs.judge.judge import Judge
from envs.problem import Verdict
from envs.sandbox.embedded import EmbeddedSandbox
from envs.tasks.mini import problems as task
from envs.tasks.mini.families import draft
from envs.tasks.mini.problems import MINI, compositions
from experiments.nano import feedback_corpus
from experiments.nano.feedback_corpus import MENDED, SLIP, FeedbackCorpus, judgement
from experiments.nano.pretrain import encode, observation_encoder
from tests.experiments.compose import config

ROOT = Path(__file__).resolve().parents[2]
BUNDLED = ROOT / "assets" / "nano_feedback"


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(ROOT / "assets" / "nano")


@pytest.fixture(scope="module")
def conversations(tokenizer):
    return list(islice(FeedbackCorpus(0, observation_encoder(tokenizer)), 300))


@pytest.fixture(scope="module")
def judged():
    """Problems with one test, a version of a program to each, and its judgement here."""
    corpus = FeedbackCorpus(5, encoder=None)  # it observes nothing here
    rows = []
    for style in range(120):
        drawn, shown = corpus.draw()
        problem = feedback_corpus._public(drawn, shown)
        program = drawn.version(str(style), corpus.noise.mistakes(drawn, corpus.rng))
        rows.append((problem, judgement(problem, program)))
    return rows


def test_conversations_are_deterministic_and_keep_off_the_other_splits(conversations, tokenizer):
    encoder = observation_encoder(tokenizer)
    assert conversations == list(islice(FeedbackCorpus(0, encoder), len(conversations)))
    assert conversations != list(islice(FeedbackCorpus(1, encoder), len(conversations)))
    held_out = {p.statement for split in ("tune", "choose", "test") for p in task.load(split, 21)}
    assert not held_out & {one.prompt.split("\nin:\n")[0] for one in conversations}
    assert Counter(len(one.answers) for one in conversations).keys() == {1, 2, 3}


def test_the_judge_says_of_a_program_what_the_corpus_says(judged):
    """Its conversations are made in this process; a run's are made in a sandbox."""
    with EmbeddedSandbox(1) as sandbox:
        found = Judge(sandbox).judge(
            [Submission(problem, as_response(ours.program)) for problem, ours in judged]
        )
    feedback = Feedback("tests", feedback_corpus.TEMPLATE)
    assert {one.verdict for one in found} >= {
        *(Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR)
    }
    for (problem, ours), theirs in zip(judged, found, strict=True):
        assert ours.verdict is theirs.verdict
        if ours.verdict is not Verdict.ACCEPTED:
            said = feedback.observation(problem, ours)
            assert said == feedback.observation(problem, theirs)
            assert said != "wrong"


@pytest.mark.parametrize("family", MINI.families, ids=lambda family: family.name)
def test_versions_of_a_style_differ_in_their_mistakes_alone(family):
    """With a mark for both, the right piece and the mistake, nothing else may differ."""
    rng = Random(0)
    for parts in compositions(MINI, family, "tune")[:40]:
        drawn = draft(rng, family, parts)
        for slot, part in enumerate(parts):
            assert drawn.version("a", {}) != drawn.version("a", {slot: 0})
            marked = (*parts[:slot], replace(part, right=("@",), wrong=("@",)), *parts[slot + 1 :])
            marked_draft = replace(drawn, parts=marked)
            assert marked_draft.version("a", {}) == marked_draft.version("a", {slot: 0})


def test_a_version_without_mistakes_passes_the_sample():
    corpus = FeedbackCorpus(2, encoder=None)
    for style in range(100):
        drawn, shown = corpus.draw()
        problem = feedback_corpus._public(drawn, shown)
        assert judgement(problem, drawn.version(str(style), {})).verdict is Verdict.ACCEPTED


@pytest.mark.parametrize("level", [0, 1, 2])
def test_mistakes_are_mended_and_made_at_the_stated_rates(level):
    corpus, counts = FeedbackCorpus(1, encoder=None), Counter()
    for _ in range(2000):
        drawn, _ = corpus.draw()
        before = corpus.noise.mistakes(drawn, corpus.rng)
        after = corpus._next(drawn, before)
        for slot, part in enumerate(drawn.parts):
            if part.level == level:
                counts[slot in before, slot in after] += 1
    mistakes = counts[True, True] + counts[True, False]
    rights = counts[False, True] + counts[False, False]
    assert min(mistakes, rights) > 200
    for made, total, rate in (
        (counts[True, False], mistakes, MENDED[level]),
        (counts[False, True], rights, SLIP),
    ):
        assert abs(made / total - rate) < 4 * (rate * (1 - rate) / total) ** 0.5


def test_a_conversation_is_encoded_as_a_run_encodes_it(conversations, tokenizer):
    """Answers with their end tokens are learned; prompt and observations are read."""
    for one, (ids, own) in zip(conversations, encode(tokenizer, conversations), strict=True):
        messages = [{"role": "user", "content": one.prompt}]
        for answer, observation in zip(one.answers, (*one.observations, ""), strict=True):
            messages.append({"role": "assistant", "content": answer})
            messages.append({"role": "user", "content": observation})
        whole = tokenizer.apply_chat_template(messages[:-1], tokenize=False)
        assert tokenizer.decode(ids) == whole
        learned = tokenizer.decode([i for i, mine in zip(ids, own, strict=True) if mine])
        assert learned == "".join(answer + tokenizer.eos_token for answer in one.answers)
        assert len(ids) <= 400


def test_the_task_takes_its_model_and_the_words_that_the_model_has_seen(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # the template is found from any folder
    chosen = config("task=mini_feedback")
    assert (chosen.model.name, chosen.model.path) == ("nano_feedback", "assets/nano_feedback")
    assert chosen.task.turns == feedback_corpus.TURNS
    template = Feedback("tests", Path(chosen.task.feedback_prompt))
    assert template.digest == Feedback("tests", feedback_corpus.TEMPLATE).digest
    encoder = observation_encoder(AutoTokenizer.from_pretrained(ROOT / "assets" / "nano"))
    assert chosen.task.max_observation_tokens == encoder.max_tokens


def test_the_bundled_model_is_of_nano_s_size_and_has_its_tokenizer():
    from transformers import AutoModelForCausalLM

    files = list(BUNDLED.iterdir())
    assert sum(file.stat().st_size for file in files) <= 6_000_000
    nano, feedback = (
        AutoTokenizer.from_pretrained(ROOT / "assets" / name) for name in ("nano", BUNDLED.name)
    )
    assert feedback.get_vocab() == nano.get_vocab()
    assert feedback.chat_template == nano.chat_template
    model = AutoModelForCausalLM.from_pretrained(BUNDLED)
    assert model.num_parameters() == 770_944
    chosen = config("task=mini_feedback")  # vLLM refuses a model with fewer positions
    longest = chosen.task.max_prompt_tokens + chosen.longest_response(chosen.task.turns)
    assert longest <= model.config.max_position_embeddings
