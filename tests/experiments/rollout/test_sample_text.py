"""A response is shown with its verdict, cut to a screen, and cannot steer the terminal."""

from dataclasses import replace

from experiments.rollout.rewards import MAX_LINES, MAX_WIDTH, sample_lines
from experiments.sample import Turn
from tests.experiments.rollout.test_learning_signs import sample


class Tokenizer:
    def decode(self, tokens, skip_special_tokens):
        return "no program here"


def test_the_accepted_response_is_shown_first():
    head, program = sample_lines(7, [sample(0, False), sample(1, True, program="print(2)")], None)
    assert head == "step 7, a response to p1: ACCEPTED, reward 1, 2 tokens"
    assert program == "    print(2)"


def test_a_long_or_hostile_program_is_cut_and_written_out():
    long = sample(0, True, truncated=True, program="\x1b[2J" + "x" * 10_000 + "\ny" * 100)
    head, *lines = sample_lines(1, [long], None)
    assert head.endswith("cut off")
    assert len(lines) == MAX_LINES + 1 and lines[-1] == "    … 89 more lines"
    assert lines[0].startswith("    ⟨U+001B⟩[2J") and len(lines[0]) <= MAX_WIDTH + 12


def test_of_a_conversation_the_last_answer_is_shown():
    class Ids:
        def decode(self, tokens, skip_special_tokens):
            return str(tokens)

    talk = replace(
        sample(0, False, program=""),
        tokens=(1, 2, 3, 4, 5, 6),
        logps=(-1.0,) * 6,
        turns=(Turn(2, 2), Turn(2)),
    )
    head, text = sample_lines(1, [talk], Ids())
    assert head.endswith("reward 0, 4 tokens in 2 answers, of which this is the last")
    assert text == "    [5, 6]"


def test_without_a_program_the_text_is_shown_and_without_fresh_responses_nothing():
    wrong = sample(0, False, program="")
    assert sample_lines(1, [wrong], Tokenizer())[1] == "    no program here"
    assert sample_lines(1, [replace(wrong, logps=None)], Tokenizer()) == []
