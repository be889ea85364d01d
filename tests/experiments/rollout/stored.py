"""Samples made by hand, and rollouts without an engine and a judge."""

from envs.problem import Judgement, Problem, Verdict
from experiments.engines.base import Sampling
from experiments.rollout.rollouts import Rollouts
from experiments.run_dir.ledger import Ledger, ModelFlops
from experiments.sample import Origin, PromptedProblem, Sample
from tests.experiments.compose import config


def prompt(name="p"):
    return PromptedProblem(Problem(name, "", (), ()), (2, *name.encode()))


def sample(of, token, reward=1.0, version=0, source="policy", step=1, program=None, logps=(-0.5,)):
    """One token, which tells it apart."""
    verdict = Verdict.ACCEPTED if reward else Verdict.WRONG_ANSWER
    text = f"print({token})" if program is None else program
    told = (of.problem.hash, "judge 1")
    judgement = Judgement(verdict, int(reward), 1, 1, text, 0.25, "", *told)
    run = None if source == "dataset" else "run-a"
    origin = Origin(source, run, step, version)
    return Sample(of, (token,), logps, judgement, reward, False, origin)


class Answers:
    """A responder that gives response i of a batch to a problem the reward `reward(name, i)`."""

    engine = judge = dialogue = None

    def __init__(self, reward):
        self.reward, self.asked = reward, []

    def respond(self, prompts, seeds, sampling, origin, begun=None):
        self.asked.append(([p.problem.name for p in prompts], seeds))
        owners = [p for p, group in zip(prompts, seeds, strict=True) for _ in group]
        rewards = [float(self.reward(p.problem.name, i)) for i, p in enumerate(owners)]
        return [], [sample(p, 0, paid) for p, paid in zip(owners, rewards, strict=True)]


def rollouts_of(prompts, reward, *overrides, **parts):
    """Rollouts on these prompts; their `responder` is `Answers`."""
    ledger = Ledger(model=ModelFlops(blocks=10, head=1))
    given = {"sampling": Sampling(8), "ledger": ledger} | parts
    return Rollouts(config(*overrides), prompts, Answers(reward), "run", **given)
