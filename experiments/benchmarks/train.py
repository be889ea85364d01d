"""`make bench-train`: cost of an optimiser step of each algorithm, and of whole GRPO steps.

Every algorithm steps on the same sampled responses, in turn, in one process on one thread. Ratios
to the raw forward and backward pass of the same rows are taken within a round. CPU time is of this
process.

Whole steps of GRPO follow, from prompts to new weights: ours and, where it is installed (extra
`peer`), TRL's in turn. Both begin with the same weights and prompts, write as many responses of the
same length at most, and take their rewards from a judge of their own in the same sandbox. The floor
is the raw pass over our responses: no response is written or judged, no weight changes. Rows of
phases say what each spends its wall time on; TRL's scoring by the reference is in its training. A
model that is not bundled takes whole steps alone: seven learners at once need too much memory.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from pydantic import PositiveInt

from envs.environment import Environment
from experiments.benchmarks import common, workload
from experiments.benchmarks.common import Row, Values, start_timer
from experiments.benchmarks.peers.trl import (
    TRL_RELEASE,
    OurSteps,
    reward_function,
    trl_is_installed,
    trl_trainer,
)
from experiments.benchmarks.workload import MiniContests, padded
from experiments.config.composition import config_of
from experiments.config.model_folder import BUILT_HERE
from experiments.sample import Sample

if TYPE_CHECKING:
    import torch
    from torch import nn

RELATIVE = "CPU time relative to raw"
GOALS = {"SPO": "≤ 0.75", "GRPO": "≤ 0.7", "PPO critic=separate": "≤ 1.35"}  # by prefix
TIMES_TRL = "≥ 3"
PHASES = ("generate", "judge", "reference", "train")  # of the ledger
OURS, TRL, FLOOR = (f"whole GRPO step, {whose}" for whose in ("ours", "TRL's", "raw pass alone"))
Step = Callable[[Sequence[Sample], int], object]


@dataclass
class Options(common.Options):
    model: str = "nano"  # of conf/model, a folder, a .gguf file or a hub id
    prompts: PositiveInt | None = None  # of a batch; null: 16, not bundled: 4
    group: PositiveInt | None = None  # responses to each prompt; null: 8, not bundled: 4
    max_tokens: PositiveInt | None = None  # of a response; null: 64, not bundled: 48


def main(options: Options) -> None:
    """Measure and write `train.json`."""
    model = workload.usable_model(options.model)
    import torch

    torch.set_num_threads(1)
    size = workload.batch_size(model, options.prompts, options.group, options.max_tokens)
    mini = MiniContests.load(model, size)
    rows = measure_steps(options.rounds, mini) if model.path in BUILT_HERE else []
    rows += measure_whole_steps(options.rounds, mini)
    facts = {"model": options.model, "workload": f"{size} tokens", "threads": 1}
    common.finish("train", rows, options.out, **facts)


def measure_steps(rounds: int, mini: MiniContests) -> list[Row]:
    """One optimiser step of each algorithm and of the raw pass, in turn."""
    policy, pad, size = mini.engine.policy, mini.engine.pad, mini.size
    samples = workload.responses(mini.engine, mini.prompts, size.responses, size.max_tokens)
    steps = dict[str, Step]()
    for name, algorithm in workload.algorithms().items():
        steps[name] = workload.step_of(algorithm, policy, pad)
    steps["raw"] = Raw(policy.model)

    def time_step(step: Step, number: int) -> dict[str, float]:
        seconds = start_timer()
        step(samples, size.responses)
        return seconds()

    cases = {name: partial(time_step, step) for name, step in steps.items()}
    goals = {
        (n, RELATIVE): GOALS[prefix] for n in steps for prefix in GOALS if n.startswith(prefix)
    }
    return common.compare(common.alternate(cases, rounds), "s", "raw", goals)


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

        prompts = padded([sample.prompt.tokens for sample in samples], "left")
        tokens = padded([sample.tokens for sample in samples], "right")
        ids = torch.cat([prompts, tokens], 1).to(next(self.model.parameters()).device)
        mask, ids = (ids >= 0).long(), ids.clamp(min=0)
        places = {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
        logits = self.model(input_ids=ids, **places, logits_to_keep=tokens.shape[1] + 1).logits
        logps = (logits[:, :-1].float() / config_of([]).train.temperature).log_softmax(-1)
        mask, ids = mask[:, prompts.shape[1] :], ids[:, prompts.shape[1] :]
        return (logps.gather(-1, ids[..., None])[..., 0] * mask).sum(-1) / mask.sum(-1)


# Whole steps


class WholeSteps:
    """Rounds of our step and the floor, and what was measured, TRL's steps included."""

    def __init__(self, mini: MiniContests, judge: Environment) -> None:
        self.mini, self.floor = mini, Raw(mini.engine.model)
        self.ours = OurSteps(mini, judge, workload.algorithms()["GRPO"])
        self.seconds: Values = {OURS: [], TRL: [], FLOOR: []}
        self.parts: Values = {OURS: [], TRL: []}  # of their wall time
        self.tokens: Values = {OURS: [], TRL: []}  # of the responses

    def take(self) -> None:
        """Measure our step and the floor once."""
        spent = self.ours.ledger.seconds
        before, timer = dict(spent), start_timer()
        samples = self.ours.take(self.mini.prompted, number=len(self.parts[OURS]))
        self.seconds[OURS].append(timer())
        parts = {f"wall time, {phase}": spent[phase] - before[phase] for phase in PHASES}
        start = time.perf_counter()  # a further step with the same gradients
        self.ours.step.learner.optimiser.step()
        parts["wall time, train: the optimiser"] = time.perf_counter() - start
        self.parts[OURS].append(parts)
        self.count_tokens(OURS, [sample.tokens for sample in samples])
        timer = start_timer()
        self.floor(samples, self.mini.size.responses)
        self.seconds[FLOOR].append(timer())

    def count_tokens(self, whose: str, responses: Sequence[Sequence[int]]) -> None:
        self.tokens[whose].append({"tokens of the responses": sum(map(len, responses))})

    def rows(self) -> Iterator[Row]:
        """All rounds but the first, which warms up."""
        goals = {(TRL, f"CPU time relative to {OURS}"): TIMES_TRL}
        for values, unit in ((self.seconds, "s"), (self.parts, "s"), (self.tokens, "tokens")):
            measured = {name: rounds[1:] for name, rounds in values.items() if rounds}
            baseline = OURS if values is self.seconds else None
            yield from common.compare(measured, unit, baseline, goals)


def measure_whole_steps(rounds: int, mini: MiniContests) -> Iterator[Row]:
    """Whole steps of ours, of TRL and the floor, in turn. Raises UserError without a sandbox."""
    from experiments.rollout.environments import open_environments

    with open_environments(replace(config_of([]), task=mini.task)) as environments:
        steps = WholeSteps(mini, environments.make())
        if trl_is_installed():
            take_turns_with_trl(steps, environments.make(), rounds + 1)
        else:
            print(f"TRL {TRL_RELEASE} is not installed: ours alone; pip install -e '.[peer]'")
            for _ in range(rounds + 1):
                steps.take()
    return steps.rows()


def take_turns_with_trl(steps: WholeSteps, judge: Environment, rounds: int) -> None:
    """Measure ours before each of TRL's steps."""
    import transformers

    mini, phases = steps.mini, dict[str, float]()

    class Turns(transformers.TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            steps.take()
            phases.clear()
            self.timer = start_timer()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            steps.seconds[TRL].append(seconds := self.timer())
            rest = seconds["wall time"] - sum(phases.values())
            parts = {f"wall time, {phase}": phases[phase] for phase in ("generate", "judge")}
            steps.parts[TRL].append(parts | {"wall time, reference and train": rest})

    prompted = mini.prompted * rounds
    rewards = reward_function(mini, prompted, judge, lambda ids, _: steps.count_tokens(TRL, ids))
    with tempfile.TemporaryDirectory() as folder:
        trainer = trl_trainer(folder, mini, _timed(rewards, "judge", phases), prompted)
        trainer.model.generate = _timed(trainer.model.generate, "generate", phases)
        trainer.add_callback(Turns())
        trainer.train()


def _timed(act: Callable[..., Any], phase: str, seconds: dict[str, float]) -> Callable[..., Any]:
    """A function that does the same and leaves its wall time in `seconds`."""

    @wraps(act)  # TRL asks a reward function for its name
    def timed(*arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        result = act(*arguments, **named)
        seconds[phase] = time.perf_counter() - start
        return result

    return timed


if __name__ == "__main__":
    common.command(Options, main)
