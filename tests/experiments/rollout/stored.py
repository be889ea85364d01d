"""Samples made by hand, as a policy would have written them."""

from envs.problem import Judgement, Problem, Verdict
from experiments.sample import Origin, PromptedProblem, Sample


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
