"""`make nano`: train a small Llama that writes programs for MiniContests.

    python -m experiments.nano size=1m           # rebuild a bundled model: assets/nano
    python -m experiments.nano size=5m           # assets/nano_5m; feedback: assets/nano_feedback
    python -m experiments.nano size=15m          # outputs/nano_15m, for model=nano_15m
    python -m experiments.nano size=25m device=cuda    # outputs/nano_25m, and 60m likewise

It is trained from nothing, a bundled model on one core. The same command resumes after any
interruption, on a CPU with the same bits. The corpus is statements of the train split with
deliberately noisy programs: each part is replaced by one of its typical mistakes with a probability
that grows with the part's rarity, independently of the others. So the model is sometimes right on
easy problems and hardly ever on hard ones. The next-token loss is on programs only: statements and
observations are given.
"""

from __future__ import annotations

import math
import random
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import NonNegativeInt, PositiveFloat
from rich.progress import track
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from envs.judge.grading import exception_text
from envs.problem import Judgement, Problem, Test, Verdict
from envs.tasks import mini
from envs.tasks.prompts import TEMPLATES, Feedback
from experiments.errors import UserError, command
from experiments.rollout.conversations import ObservationEncoder, observation_text

ROOT = Path(__file__).resolve().parents[1]
CHECKPOINT = "training.pt"
MAX_OBSERVATION_TOKENS = 64  # as conf/task/mini_feedback.yaml has it
CONVERSATIONS = 512  # sorted by length at once
SAVE_S = 20.0  # least time between two checkpoints


@dataclass
class Options:
    """The command line."""

    size: Literal["1m", "5m", "15m", "25m", "60m", "feedback"] = "1m"
    out: Path | None = None  # folder of the model; null: that of its file in conf/model
    seed: NonNegativeInt = 0  # of weights and texts
    device: str = "cpu"  # or cuda, where sizes from 25m take minutes
    minutes: PositiveFloat | None = None  # after which the schedule ends, with its steps or before


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a model and its training. The defaults make assets/nano."""

    seed: int = 0
    task: str = "mini"  # whose problems and programs it learns from
    steps: int = 2600  # of the optimiser
    batch_size: int = 16  # of a step
    learning_rate: float = 3e-3  # the highest, after the warm-up
    warmup: int = 60  # steps over which the learning rate rises
    hidden_size: int = 128  # of the model
    intermediate_size: int = 384  # of each block's MLP
    layers: int = 3  # number of blocks
    heads: int = 4  # of attention in each block
    tokenizer: str = ""  # folder of a model whose tokenizer is taken; empty: train one
    tokenizer_texts: int = 8000  # pairs that a tokenizer is trained on
    saved_dtype: str = "float32"  # of the weights in the file
    threads: int = 1  # of the CPU
    autocast: bool = False  # matrix products in bfloat16


def _long(width: int, layers: int, learning_rate: float, **more: Any) -> dict[str, Any]:
    """A recipe for the longer problems: heads of 64, and an MLP of three times the width."""
    shape = {"hidden_size": width, "intermediate_size": 3 * width, "heads": width // 64}
    common = {"task": "mini_long", "warmup": 150, "tokenizer": "assets/nano"}
    return shape | common | {"layers": layers, "learning_rate": learning_rate} | more


SIZES: dict[str, dict[str, Any]] = {
    "1m": {},
    "5m": _long(320, 4, 1.2e-3, steps=4000, batch_size=8, saved_dtype="float16"),
    "15m": _long(384, 8, 1e-3, steps=3200, batch_size=8, threads=2, autocast=True),
    "25m": _long(512, 7, 8e-4, steps=2500, batch_size=32),  # for a GPU, as the next
    "60m": _long(768, 8, 6e-4, steps=2500, batch_size=32),
    # learns from conversations
    "feedback": {"task": "mini_feedback", "steps": 5200, "tokenizer": "assets/nano"},
}
BUNDLED = {"1m": "assets/nano", "5m": "assets/nano_5m", "feedback": "assets/nano_feedback"}


# Corpora


class Conversation(NamedTuple):
    """What a model learns from: answers to a prompt, and what was observed between them."""

    prompt: str
    answers: tuple[str, ...]  # programs
    observations: tuple[str, ...] = ()  # one after each answer but the last


@dataclass(frozen=True)
class Noise:
    """How often a corpus is wrong, and how hard its problems are."""

    right: tuple[float, float, float]  # probability that a part of level 0, 1, 2 is right
    first_mistake: float = 0.9  # share of the wrong ones that make the most typical mistake
    tiers: Mapping[str, float] = field(
        default_factory=lambda: {"easy": 0.3, "medium": 0.4, "hard": 0.3}
    )

    def mistakes(self, drawn: mini.Draft, rng: random.Random) -> dict[int, int]:
        """{slot: index of the part's mistake} of the slots that go wrong."""
        wrong: dict[int, int] = {}
        for slot, part in enumerate(drawn.parts):
            if rng.random() >= self.right[part.level]:
                wrong[slot] = 0 if rng.random() < self.first_mistake else 1
        return wrong


# A program of the longer problems has twice the parts, so each is right more often.
NOISE = {mini.MINI: Noise((0.65, 0.42, 0.18)), mini.MINI_LONG: Noise((0.8, 0.6, 0.4))}


class Corpus(Iterator[Conversation]):
    """Endless prompts of the train split's compositions, each with one program.

    The state of `rng` is the position in them.
    """

    def __init__(self, problem_set: mini.ProblemSet, seed: int) -> None:
        name = "nano" if problem_set is mini.MINI else f"nano/{problem_set.name}"
        self.rng = random.Random(f"{name}/{seed}")
        self.families = problem_set.families
        self.noise = NOISE[problem_set]
        self._cells: dict[tuple[str, str], list[tuple[mini.Part, ...]]] = {
            (family.name, tier): [] for family in self.families for tier in self.noise.tiers
        }
        for family in self.families:
            for parts in mini.compositions(problem_set, family, "train"):
                self._cells[family.name, family.tier(parts)].append(parts)

    def __next__(self) -> Conversation:
        drawn, shown = self.draw()
        program = drawn.program(self.rng, self.noise.mistakes(drawn, self.rng))
        return Conversation(mini.render(drawn.statement, (shown,)), (program,))

    def draw(self) -> tuple[mini.Draft, Test]:
        """Draw a problem, and the test that its statement shows."""
        rng, tiers = self.rng, self.noise.tiers
        while True:
            family = rng.choice(self.families)
            tier = rng.choices(list(tiers), list(tiers.values()))[0]
            drawn = mini.draft(rng, family, rng.choice(self._cells[family.name, tier]))
            shown = mini.sample(drawn, rng, drawn.program(rng))
            if shown is not None:
                return drawn, shown


TURNS = 3
MENDED = (0.5, 0.35, 0.2)  # probability that a mistake in a part of level 0, 1, 2 is mended
SLIP = 0.03  # probability that a right part goes wrong
WITHHELD = 0.25  # share of conversations in which an observation says only that an answer is wrong


class FeedbackCorpus(Corpus):
    """Endless conversations: a noisy program, what its sample says of it, and a mended program.

    An answer that fails the problem's sample is followed by an observation, in the words that a run
    uses, and by another version of the same program. In it each mistake is mended with a
    probability that falls with the part's rarity, and each right part goes wrong now and then. A
    version does not depend on the words of the observation: what it says helps a model only to find
    the part that is wrong.
    """

    def __init__(self, seed: int, encoder: ObservationEncoder) -> None:
        """`encoder`: of the model that learns from them; it decides how long an observation is."""
        super().__init__(mini.MINI, seed)
        self.rng = random.Random(f"nano/feedback/{seed}")
        self.encoder = encoder
        template = TEMPLATES / "feedback_mini.jinja"
        self.tests, self.withheld = Feedback("tests", template), Feedback("withheld", template)

    def __next__(self) -> Conversation:
        drawn, shown = self.draw()
        feedback = self.withheld if self.rng.random() < WITHHELD else self.tests
        problem = public_problem(drawn, shown)
        style = str(self.rng.getrandbits(64))
        mistakes = self.noise.mistakes(drawn, self.rng)
        answers, observations = [drawn.version(style, mistakes)], []
        while len(answers) < TURNS:
            judged = judgement(problem, answers[-1])
            if judged.verdict is Verdict.ACCEPTED:
                break
            observations.append(observation_text(self.encoder, feedback, problem, judged))
            mistakes = self._next(drawn, mistakes)
            answers.append(drawn.version(style, mistakes))
        prompt = mini.render(drawn.statement, (shown,))
        return Conversation(prompt, tuple(answers), tuple(observations))

    def _next(self, drawn: mini.Draft, mistakes: dict[int, int]) -> dict[int, int]:
        """Return the mistakes of the next version."""
        left: dict[int, int] = {}
        for slot, part in enumerate(drawn.parts):
            right = MENDED[part.level] if slot in mistakes else 1 - SLIP
            if self.rng.random() >= right:
                left[slot] = 0 if self.rng.random() < self.noise.first_mistake else 1
        return left


def public_problem(drawn: mini.Draft, shown: Test) -> Problem:
    """The problem with the test that its statement shows, alone."""
    text, tests = drawn.statement, (shown,)
    return Problem(text, text, tests, tests, time_limit_s=mini.TIME_LIMIT_S, in_order=True)


def judgement(problem: Problem, program: str) -> Judgement:
    """Judge a program of this package by a problem's only test, in this process."""
    [test] = problem.tests
    judged = partial(Judgement, total=1, run=1, program=program, problem_hash=problem.hash)
    try:
        output = mini.run_own(program, test.input)
    except Exception:
        # A submitted program has this name in the sandbox.
        shown = traceback.format_exc().replace('File "<program>"', 'File "main.py"')
        exception = exception_text(shown)
        return judged(Verdict.RUNTIME_ERROR, passed=0, failed_test=0, exception=exception)
    if output.split() == test.output.split():
        return judged(Verdict.ACCEPTED, passed=1)
    return judged(Verdict.WRONG_ANSWER, passed=0, failed_test=0, output=output)


# Tokenizer

# Digits are single tokens and no merge crosses a blank or a line. So constants are copied digit by
# digit, and a word has the same tokens everywhere.
PIECES = r"\n| ?[0-9]| ?[^\s0-9]+|\s+"
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE of at most 1,024 tokens, with its chat template."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    pad, bos, eos = "<|pad|>", "<|bos|>", "<|eos|>"
    roles = ["<|user|>", "<|assistant|>", "<|system|>"]
    core = Tokenizer(models.BPE())
    pieces = pre_tokenizers.Split(Regex(PIECES), "isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([pieces, bytes_])
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=[pad, bos, eos, *roles],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=bos,
        eos_token=eos,
        pad_token=pad,
        additional_special_tokens=roles,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=512,
        chat_template=CHAT_TEMPLATE,
    )


# Training


def pretrain(out: Path, recipe: Recipe, device: str = "cpu", minutes: float | None = None) -> None:
    """Train tokenizer and model, and write both to the folder `out` in transformers' format.

    A call that was interrupted resumes from the checkpoint in `out`. With `minutes`, the learning
    rate falls by the clock where that is ahead of the steps. Raises UserError if the checkpoint is
    of another recipe.
    """
    began, saved = time.monotonic(), -math.inf
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(recipe.threads)
    if device != "cpu":
        torch.set_float32_matmul_precision("high")
    corpus, tokenizer = corpus_and_tokenizer(recipe)
    with torch.device(device):
        model = new_model(recipe, tokenizer)
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors}]
    optimizer = torch.optim.AdamW(
        groups, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.0, foreach=True
    )
    start, file = 0, out / CHECKPOINT
    if file.exists():
        state = torch.load(file, weights_only=True, map_location="cpu")
        if state["recipe"] != asdict(recipe):
            raise UserError(f"{file} is an unfinished training of another recipe: delete it")
        corpus.rng.setstate(state["corpus"])
        torch.set_rng_state(state["torch"])
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    pending: list[tuple[Tensor, Tensor]] = []
    loss = torch.tensor(math.nan)
    for step in track(range(start, recipe.steps), "pretraining"):
        spent = (time.monotonic() - began) / (60 * minutes) if minutes else 0.0
        place = max(step, math.floor(spent * recipe.steps))
        if place >= recipe.steps:
            print(f"{minutes:g} minutes are over after {step} of {recipe.steps} steps")
            break
        if not pending:  # so no conversation that was drawn is left untrained
            if time.monotonic() - saved >= SAVE_S:
                saved = time.monotonic()
                state = {"step": step, "recipe": asdict(recipe), "corpus": corpus.rng.getstate()}
                state |= {"torch": torch.get_rng_state(), "model": model.state_dict()}
                torch.save(state | {"optimizer": optimizer.state_dict()}, file.with_suffix(".tmp"))
                file.with_suffix(".tmp").replace(file)
            print(f"step {step} of {recipe.steps}, loss {loss:.3f}", flush=True)
            conversations = list(islice(corpus, CONVERSATIONS))
            pending = batches(conversations, tokenizer, recipe.batch_size)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(place, recipe)
        with torch.autocast(torch.device(device).type, torch.bfloat16, recipe.autocast):
            loss = program_loss(model, *(part.to(device) for part in pending.pop()))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    model.to(getattr(torch, recipe.saved_dtype)).save_pretrained(out)
    tokenizer.save_pretrained(out)
    file.unlink(missing_ok=True)


def corpus_and_tokenizer(recipe: Recipe) -> tuple[Corpus, PreTrainedTokenizerBase]:
    """The corpus, and the tokenizer of another model or one trained on the corpus's first texts."""
    tokenizer: Any = None
    if recipe.tokenizer:
        tokenizer = AutoTokenizer.from_pretrained(ROOT / recipe.tokenizer)
    if recipe.task == "mini_feedback":
        return FeedbackCorpus(recipe.seed, observation_encoder(tokenizer)), tokenizer
    corpus = Corpus(mini.PROBLEM_SETS[recipe.task], recipe.seed)
    if tokenizer is None:
        first = list(islice(corpus, recipe.tokenizer_texts))
        tokenizer = train_tokenizer("\n".join((one.prompt, *one.answers)) for one in first)
    return corpus, tokenizer


def new_model(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> LlamaForCausalLM:
    """A freshly initialised `LlamaForCausalLM` of the recipe's size."""
    special = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        **special,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=True, **special)
    return model


def program_loss(model: LlamaForCausalLM, tokens: Tensor, mask: Tensor) -> Tensor:
    """Mean cross-entropy of the tokens where `mask` is true; both `(batch, time)`, right-padded.

    Only these positions pass the output layer, a large part of so small a model.
    """
    hidden = model.model(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state
    chosen = mask[:, 1:]
    return functional.cross_entropy(model.lm_head(hidden[chosen]), tokens[:, 1:][chosen])


def learning_rate(step: int, recipe: Recipe) -> float:
    """Linear warmup, then a cosine to a twentieth of the peak."""
    if step < recipe.warmup:
        return recipe.learning_rate * (step + 1) / recipe.warmup
    share = (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
    return recipe.learning_rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))


def encode(
    tokenizer: PreTrainedTokenizerBase, conversations: Sequence[Conversation]
) -> list[tuple[list[int], list[bool]]]:
    """Token ids of each conversation as the chat template renders it, and which are of answers.

    Each answer has the end token behind it.
    """
    chats = [[{"role": "user", "content": one.prompt}] for one in conversations]
    texts = tokenizer.apply_chat_template(chats, add_generation_prompt=True, tokenize=False)
    prompts = tokenizer(texts, add_special_tokens=False)["input_ids"]
    programs = [answer for one in conversations for answer in one.answers]
    answers = iter(tokenizer(programs, add_special_tokens=False)["input_ids"])
    observing = observation_encoder(tokenizer)
    rows = []
    for prompt, one in zip(prompts, conversations, strict=True):
        ids, own = list(prompt), [False] * len(prompt)
        for observation in (*one.observations, None):
            answer = [*next(answers), tokenizer.eos_token_id]
            observed = observing.encode(observation, cut_off=False)[0] if observation else []
            ids += [*answer, *observed]
            own += [True] * len(answer) + [False] * len(observed)
        rows.append((ids, own))
    return rows


def batches(
    conversations: Sequence[Conversation], tokenizer: PreTrainedTokenizerBase, size: int
) -> list[tuple[Tensor, Tensor]]:
    """(tokens, mask of the answers) of `size` conversations each, right-padded, in random order.

    Conversations of similar length go together, to pad little.
    """
    rows = sorted(encode(tokenizer, conversations), key=lambda row: len(row[0]))
    batches = []
    for start in range(0, len(rows), size):
        chunk = rows[start : start + size]
        ids, own = ([torch.tensor(row[part]) for row in chunk] for part in (0, 1))
        tokens = pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id)
        batches.append((tokens, pad_sequence(own, batch_first=True)))
    return [batches[index] for index in torch.randperm(len(batches))]


def observation_encoder(tokenizer: PreTrainedTokenizerBase) -> ObservationEncoder:
    """Encode observations as a run of task=mini_feedback does."""
    return ObservationEncoder(tokenizer, True, {}, MAX_OBSERVATION_TOKENS)


def main(options: Options) -> None:
    """Train in a folder beside `out`, which an interrupted training leaves to be resumed."""
    started = time.perf_counter()
    out = options.out or ROOT / BUNDLED.get(options.size, f"outputs/nano_{options.size}")
    folder = out.with_name(f"{out.name}.unfinished")
    folder.mkdir(parents=True, exist_ok=True)
    recipe = Recipe(seed=options.seed, **SIZES[options.size])
    pretrain(folder, recipe, options.device, options.minutes)
    out.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.replace(out / file.name)
    folder.rmdir()
    print(f"nano: {out}, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    command(Options, main)
