"""Whole steps of GRPO, from prompts to new weights: ours, TRL's where it is installed, the floor.

Both begin with the same weights and prompts, write as many responses of the same length at most,
and take their rewards from a judge of their own in the same sandbox. The floor is the raw forward
and backward pass of our responses: no response is written or judged, no weight changes.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from algorithms.grpo import GRPOConfig
from envs.environment import Environment, Submission
from experiments.benchmarks.common import Row, Values, compare, start_timer
from experiments.benchmarks.workload import (
    LEARNING_RATE,
    BatchSize,
    MiniContests,
    algorithms,
    padded,
    step_of,
)
from experiments.config.schema import RunConfig, TrainConfig
from experiments.engines.base import Sampling
from experiments.sample import Origin, Sample, compute_reward

if TYPE_CHECKING:
    import torch
    from torch import nn

TRL_RELEASE, TIMES_TRL = "1.16.0", "≥ 3"
PHASES = ("generate", "judge", "reference", "train")  # of the ledger
OURS, TRL, FLOOR = (f"whole GRPO step, {whose}" for whose in ("ours", "TRL's", "raw pass alone"))


class Raw:
    """The least of any trainer: forward and backward of the mean log-prob, in padded batches.

    Prompts are padded on the left, responses on the right. Logits are at response positions only.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(model)

    def __call__(self, samples: Sequence[Sample], group_size: int, micro_batch: int = 64) -> None:
        self.model.zero_grad(set_to_none=True)
        for start in range(0, len(samples), micro_batch):
            loss = -self._mean_logps(samples[start : start + micro_batch]).sum() / len(samples)
            loss.backward()

    def _mean_logps(self, samples: Sequence[Sample]) -> torch.Tensor:
        import torch

        prompts, tokens = [s.prompt.tokens for s in samples], [s.tokens for s in samples]
        width, longest = max(map(len, prompts)), max(map(len, tokens))
        device = next(self.model.parameters()).device
        ids = torch.cat([padded(prompts, "left"), padded(tokens, "right")], 1).to(device)
        mask, ids = (ids >= 0).long(), ids.clamp(min=0)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, logits_to_keep=longest + 1
        ).logits[:, :-1]
        logps = (logits.float() / TrainConfig().temperature).log_softmax(-1)
        chosen = logps.gather(-1, ids[:, width:].unsqueeze(-1)).squeeze(-1)
        return (chosen * mask[:, width:]).sum(-1) / mask[:, width:].sum(-1)


class WholeSteps:
    """Rounds of our step and the floor, and what was measured, TRL's steps included.

    Ours is a run's step, but for judging, which begins when all responses are written.
    """

    def __init__(self, mini: MiniContests, size: BatchSize, judge: Environment) -> None:
        from experiments.engines.hf import HFEngine
        from experiments.rollout.generation import Responder

        self.mini, self.size, self.floor = mini, size, Raw(mini.engine.model)
        self.step = step_of(algorithms()["GRPO"], mini.engine.policy, mini.engine.pad)
        self.ledger = self.step.learner.ledger
        engine = HFEngine(self.step.learner.policy, mini.ends, mini.engine.pad, 4096)
        reward = mini.task.reward
        self.responder = Responder(engine, judge, mini.tokenizer, reward, False, self.ledger)
        self.seconds: Values = {OURS: [], TRL: [], FLOOR: []}
        self.parts: Values = {OURS: []}  # of our wall time
        self.tokens: Values = {OURS: [], TRL: []}  # of the responses

    def take(self) -> None:
        """Measure our step and the floor once."""
        before, timer = dict(self.ledger.seconds), start_timer()
        samples = self._our_step(number=len(self.parts[OURS]))
        self.seconds[OURS].append(timer())
        spent = self.ledger.seconds
        parts = {f"wall time, {phase}": spent[phase] - before[phase] for phase in PHASES}
        start = time.perf_counter()  # a further step with the same gradients
        self.step.learner.optimiser.step()
        parts["wall time, train: the optimiser"] = time.perf_counter() - start
        self.parts[OURS].append(parts)
        self.count_tokens(OURS, [sample.tokens for sample in samples])
        timer = start_timer()
        self.floor(samples, self.size.responses)
        self.seconds[FLOOR].append(timer())

    def _our_step(self, number: int) -> list[Sample]:
        first = [number * 10**6 + prompt * 1000 for prompt in range(self.size.prompts)]
        seeds = [range(seed, seed + self.size.responses) for seed in first]
        origin, sampling = Origin("policy", "bench", number), Sampling(self.size.max_tokens)
        _, samples = self.responder.respond(self.mini.prompted, seeds, sampling, origin)
        with self.ledger.phase("train"):
            self.step(samples, self.size.responses)
        return samples

    def count_tokens(self, whose: str, responses: Sequence[Sequence[int]]) -> None:
        self.tokens[whose].append({"tokens of the responses": sum(map(len, responses))})

    def rows(self) -> list[Row]:
        """All rounds but the first, which warms up."""
        goals = {(TRL, f"CPU time relative to {OURS}"): TIMES_TRL}
        rows = list[Row]()
        for values, unit in ((self.seconds, "s"), (self.parts, "s"), (self.tokens, "tokens")):
            measured = {name: rounds[1:] for name, rounds in values.items() if rounds}
            rows += compare(measured, unit, OURS if values is self.seconds else None, goals)
        return rows


def measure(rounds: int, mini: MiniContests, size: BatchSize) -> list[Row]:
    """Whole steps of ours, of TRL and the floor, in turn. Raises UserError without a sandbox."""
    from experiments.rollout.environments import open_environments

    with open_environments(RunConfig(None, task=mini.task)) as environments:
        steps = WholeSteps(mini, size, environments.make())
        if find_spec("trl") and version("trl") == TRL_RELEASE:
            take_turns_with_trl(steps, environments.make(), rounds + 1)
        else:
            print(f"TRL {TRL_RELEASE} is not installed: ours alone; pip install -e '.[peer]'")
            for _ in range(rounds + 1):
                steps.take()
    return steps.rows()


def take_turns_with_trl(steps: WholeSteps, judge: Environment, rounds: int) -> None:
    """Measure ours before each of TRL's steps."""
    import transformers

    prompted, reward = steps.mini.prompted, steps.mini.task.reward

    class Turns(transformers.TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            steps.take()
            self.timer = start_timer()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            steps.seconds[TRL].append(self.timer())

    def rewards(
        completions: list[str], completion_ids: list[list[int]], problem: list[int], **_: Any
    ) -> list[float | None]:
        steps.count_tokens(TRL, completion_ids)
        problems = [prompted[number].problem for number in problem]
        judgements = judge.judge(list(map(Submission, problems, completions)))
        pairs = zip(judgements, completion_ids, strict=True)
        return [compute_reward(judgement, reward, len(ids)) for judgement, ids in pairs]

    with tempfile.TemporaryDirectory() as folder:
        trainer = trl_trainer(folder, steps.mini, steps.size, rewards, rounds)
        trainer.add_callback(Turns())
        trainer.train()


def trl_trainer(
    folder: str,
    mini: MiniContests,
    size: BatchSize,
    rewards: Callable[..., list[float | None]],
    steps: int,
) -> Any:
    """TRL's GRPO trainer with our defaults; every step has all prompts. Output goes to `folder`."""
    import datasets
    import trl

    texts = [mini.tokenizer.decode(list(prompt)) for prompt in mini.prompts]
    if [tuple(mini.tokenizer(text)["input_ids"]) for text in texts] != mini.prompts:
        raise RuntimeError("TRL reads other tokens than we do")
    defaults, model = GRPOConfig(), copy.deepcopy(mini.engine.model)
    config = trl.GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=len(texts) * size.responses,
        num_generations=size.responses,
        max_completion_length=size.max_tokens,
        max_steps=steps,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        beta=defaults.kl_coef,
        epsilon=defaults.clip_low,
        loss_type="grpo",
        shuffle_dataset=False,
        bf16=False,
        gradient_checkpointing=False,
        use_cpu=model.device.type == "cpu",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    rows = {"prompt": texts * steps, "problem": list(range(len(texts))) * steps}
    return trl.GRPOTrainer(
        model=model,
        reward_funcs=rewards,
        args=config,
        train_dataset=datasets.Dataset.from_dict(rows),
        processing_class=mini.tokenizer,
    )
