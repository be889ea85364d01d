"""Pretraining of the nano models from scratch, on one core.

The next-token loss is on programs only: statements and observations are given, never generated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.progress import Progress, TextColumn, TimeRemainingColumn
from torch.nn import functional

from envs.tasks.mini.problems import PROBLEM_SETS
from experiments.nano.checkpoint import Checkpoint
from experiments.nano.corpus import Conversation, Corpus
from experiments.nano.feedback_corpus import FeedbackCorpus
from experiments.nano.recipes import Recipe
from experiments.nano.tokenizer import train_tokenizer
from experiments.rollout.observations import ObservationEncoder

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

ROOT = Path(__file__).resolve().parents[2]
CHECKPOINT = "training.pt"
MAX_OBSERVATION_TOKENS = 64  # as conf/task/mini_feedback.yaml has it
_CONVERSATIONS = 512  # sorted by length at once; a checkpoint after each


def pretrain(out: Path, recipe: Recipe) -> None:
    """Train tokenizer and model, and write both to the folder `out` in transformers' format.

    A call that was interrupted resumes from the checkpoint in `out`, and ends with the same bits.
    Raises ValueError if the checkpoint is of another recipe.
    """
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(1)
    corpus, tokenizer = _corpus(recipe)
    model = new_model(recipe, tokenizer)
    optimizer = _optimizer(model, recipe)
    checkpoint = Checkpoint(out / CHECKPOINT, recipe, corpus, model, optimizer)
    _train(checkpoint, tokenizer)
    model.eval()
    model.to(getattr(torch, recipe.saved_dtype)).save_pretrained(out)
    tokenizer.save_pretrained(out)
    checkpoint.file.unlink()


def _train(checkpoint: Checkpoint, tokenizer: PreTrainedTokenizerBase) -> None:
    """Do the recipe's remaining steps."""
    recipe, model, optimizer = checkpoint.recipe, checkpoint.model, checkpoint.optimizer
    start = checkpoint.load()
    progress = Progress(
        *Progress.get_default_columns()[:-1],
        TimeRemainingColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
    )
    pending: list[tuple[torch.Tensor, torch.Tensor]] = []
    loss = torch.tensor(float("nan"))
    with progress:
        bar = progress.add_task("pretraining", total=recipe.steps, completed=start, loss=math.nan)
        for step in range(start, recipe.steps):
            if not pending:
                checkpoint.save(step)
                if not progress.console.is_terminal:
                    progress.console.print(f"step {step} of {recipe.steps}, loss {loss:.3f}")
                conversations = list(islice(checkpoint.corpus, _CONVERSATIONS))
                pending = batches(conversations, tokenizer, recipe.batch_size)
            for group in optimizer.param_groups:
                group["lr"] = _learning_rate(step, recipe)
            loss = program_loss(model, *pending.pop())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            progress.update(bar, advance=1, loss=loss.item())


def new_model(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> LlamaForCausalLM:
    """A freshly initialised `LlamaForCausalLM` of the recipe's size."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

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


def program_loss(model: LlamaForCausalLM, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the tokens where `mask` is true; both `(batch, time)`, right-padded.

    Only these positions pass the output layer, a large part of so small a model.
    """
    hidden = model.model(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state
    chosen = mask[:, 1:]
    return functional.cross_entropy(model.lm_head(hidden[chosen]), tokens[:, 1:][chosen])


def encode(
    tokenizer: PreTrainedTokenizerBase, conversations: Sequence[Conversation]
) -> list[tuple[list[int], list[bool]]]:
    """Token ids of each conversation as the chat template renders it, and which are of answers.

    Each answer has the end token behind it.
    """
    chats = [[{"role": "user", "content": one.prompt}] for one in conversations]
    texts = tokenizer.apply_chat_template(chats, add_generation_prompt=True, tokenize=False)
    prompts = tokenizer(texts, add_special_tokens=False)["input_ids"]
    answers = iter(
        tokenizer(
            [answer for one in conversations for answer in one.answers], add_special_tokens=False
        )["input_ids"]
    )
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
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(tokens, mask of the answers) of `size` conversations each, right-padded, in random order.

    Conversations of similar length go together, to pad little.
    """
    rows = sorted(encode(tokenizer, conversations), key=lambda row: len(row[0]))
    batches = []
    for start in range(0, len(rows), size):
        chunk = rows[start : start + size]
        width = max(len(ids) for ids, _ in chunk)
        tokens = torch.full((len(chunk), width), tokenizer.pad_token_id)
        mask = torch.zeros(len(chunk), width, dtype=torch.bool)
        for row, (ids, own) in enumerate(chunk):
            tokens[row, : len(ids)] = torch.tensor(ids)
            mask[row, : len(ids)] = torch.tensor(own)
        batches.append((tokens, mask))
    return [batches[index] for index in torch.randperm(len(batches))]


def observation_encoder(tokenizer: PreTrainedTokenizerBase) -> ObservationEncoder:
    """Encode observations as a run of task=mini_feedback does."""
    return ObservationEncoder(tokenizer, True, {}, MAX_OBSERVATION_TOKENS)


def _corpus(recipe: Recipe) -> tuple[Corpus, PreTrainedTokenizerBase]:
    """The corpus, and the tokenizer of another model or one trained on the corpus's first texts."""
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase
    if recipe.task == "mini_feedback":
        tokenizer = AutoTokenizer.from_pretrained(ROOT / recipe.tokenizer)
        return FeedbackCorpus(recipe.seed, observation_encoder(tokenizer)), tokenizer
    corpus = Corpus(PROBLEM_SETS[recipe.task], recipe.seed)
    if recipe.tokenizer:
        return corpus, AutoTokenizer.from_pretrained(ROOT / recipe.tokenizer)
    first = list(islice(corpus, recipe.tokenizer_texts))
    return corpus, train_tokenizer("\n".join((one.prompt, *one.answers)) for one in first)


def _optimizer(model: LlamaForCausalLM, recipe: Recipe) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": vectors},
    ]
    return torch.optim.AdamW(
        groups, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.0, foreach=True
    )


def _learning_rate(step: int, recipe: Recipe) -> float:
    """Linear warmup, then a cosine to a twentieth of the peak."""
    if step < recipe.warmup:
        return recipe.learning_rate * (step + 1) / recipe.warmup
    share = (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
    return recipe.learning_rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))
