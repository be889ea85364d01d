"""The order in which training problems are drawn, and the pass-rate curriculum that changes it.

The order depends on the seed alone, with `train.curriculum=band` also on the judgements so far.

**Pass rate.** Of the run's own fresh training responses to a problem so far, s were accepted and
n judged. The pass rate has the prior Beta(1, 1), so its posterior is Beta(1 + s, 1 + n − s) with
mean (1 + s) / (2 + n). Offline programs, replayed samples, evaluations and responses without a
verdict do not count.

**Rule.** Turns come in the shuffled order of the seed; one pass over it gives each problem one
turn. A problem is

- solved, if its posterior mean is above .9 (at the earliest after 9 responses). It is drawn in one
  pass of 8;
- unsolved, if no response was accepted and its posterior mean is below .05 (after 19 responses). It
  is drawn in one pass of 4;
- in the band otherwise, also before it was drawn at all. It is drawn in every pass.

Which pass of 8 or of 4 is a problem's own, a random number that the seed and the problem's name
fix. So problems that are solved in one pass do not return together, no problem waits longer than 8
passes, and the order depends on the seed and the judgements alone. A turn that is passed over costs
nothing: the next problem of the order takes its place in the batch. The first pass is that of
`train.curriculum=none`.

**Limits.** All of a problem's responses count the same, however old. A problem that was learnt late
therefore stays in the band for long, and is drawn as without a curriculum. One that is forgotten
leaves the solved ones after a few failures. Only the order changes: losses, rewards and groups are
the same for every algorithm, and every drawn problem is charged.

**Sources.** DAPO (2503.14476) draws groups until enough have both successes and failures; it pays
for those it drops and keeps no memory (`train.resample_zero_variance`). Polaris (An et al. 2025)
removes problems above an accuracy of .9 during training: the upper threshold is theirs, but here
such problems return. Kimi k1.5 (2501.12599) draws in proportion to 1 − pass rate, unsolved problems
most often; not taken over. Beta posteriors of pass rates are those of MoPPS (2507.04632), which
draws around .5 by Thompson sampling and discounts old responses; neither is done here. That
nothing stays undrawn for long is what the staleness term of prioritized level replay (2010.03934)
is for. The lower threshold, 8 and 4 are our own choices, not tuned.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from experiments.sample import PromptedProblem, Sample, stream


class ProblemOrder:
    """Draws problems in passes over the shuffled training problems."""

    def __init__(
        self, prompts: Sequence[PromptedProblem], seed: int, curriculum: Curriculum | None = None
    ) -> None:
        self.prompts, self.seed, self.curriculum = prompts, seed, curriculum
        self.load_state_dict({"taken": 0})

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the shuffled problem order, and the curriculum's state."""
        curriculum = self.curriculum and self.curriculum.state_dict()
        return {"taken": self._taken, "curriculum": curriculum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after that position."""
        self._taken = state["taken"]
        self._places = self._places_after(self._taken)
        self._drawn: deque[tuple[int, PromptedProblem]] = deque()
        if self.curriculum is not None and state.get("curriculum"):
            self.curriculum.load_state_dict(state["curriculum"])

    def take(self, count: int) -> list[PromptedProblem]:
        """Return the next problems."""
        self._draw(count)
        drawn = [self._drawn.popleft() for _ in range(count)]
        before, self._taken = self._taken, drawn[-1][0]
        if self.curriculum is not None:
            names = [prompt.problem.name for _, prompt in drawn]
            self.curriculum.note_draws(names, self._taken - before)
        return [prompt for _, prompt in drawn]

    def upcoming(self, count: int, batch: int) -> list[PromptedProblem]:
        """Return the next problems without taking them.

        With a curriculum there may be fewer: only draws that no judgement to come can change, which
        are those of the next `batch` problems and of the first pass.
        """
        if self.curriculum is not None:
            count = min(count, max(batch, len(self.prompts) - self._taken))
        self._draw(count)
        return [prompt for _, prompt in itertools.islice(self._drawn, count)]

    def _draw(self, count: int) -> None:
        while len(self._drawn) < count:
            self._drawn.append(next(self._places))

    def _shuffled(self) -> Iterator[int]:
        for epoch in itertools.count():
            order = list(range(len(self.prompts)))
            stream(self.seed, "order", epoch).shuffle(order)
            yield from order

    def _places_after(self, taken: int) -> Iterator[tuple[int, PromptedProblem]]:
        """Yield (its place in the shuffled order, problem) of each draw after place `taken`."""
        for place, index in itertools.islice(enumerate(self._shuffled(), 1), taken, None):
            prompt, number = self.prompts[index], (place - 1) // len(self.prompts)
            if self.curriculum is None or self.curriculum.is_due(prompt.problem.name, number):
                yield place, prompt


LOW = 0.05  # posterior mean below which a problem without a success is unsolved
HIGH = 0.9  # posterior mean above which a problem is solved
EVERY = {"band": 1, "unsolved": 4, "solved": 8}  # passes, of which such a problem is drawn in one


def kind_of(accepted: int, judged: int) -> str:
    """Return where a problem stands after its responses so far, a key of EVERY."""
    mean = (1 + accepted) / (2 + judged)
    if mean > HIGH:
        return "solved"
    return "unsolved" if not accepted and mean < LOW else "band"


class Curriculum:
    """Pass rates so far, and which turns of the shuffled order they let pass."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._counts: dict[str, tuple[int, int]] = {}  # problem → responses (accepted, judged)
        self.start_batch()

    def state_dict(self) -> dict[str, Any]:
        """Return the counts of accepted and judged responses."""
        return {"counts": dict(self._counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._counts = dict(state["counts"])

    def is_due(self, problem: str, number: int) -> bool:
        """Return whether the problem is drawn in pass `number`, by what is known now."""
        kind = self._kind(problem)
        offset = stream(self.seed, "curriculum", kind, problem).randrange(EVERY[kind])
        return number % EVERY[kind] == offset

    def start_batch(self) -> None:
        """Begin to count the draws of a batch."""
        self._passed_over = self._returned = 0

    def note_draws(self, problems: Sequence[str], turns: int) -> None:
        """Count draws of the batch, which took so many turns; before their responses are noted."""
        self._passed_over += turns - len(problems)
        self._returned += sum(self._kind(problem) != "band" for problem in problems)

    def note_responses(self, samples: Iterable[Sample]) -> None:
        """Count the fresh responses that have a verdict."""
        for sample in samples:
            if sample.fresh and sample.reward is not None:
                name = sample.prompt.problem.name
                accepted, judged = self._counts.get(name, (0, 0))
                self._counts[name] = accepted + sample.accepted, judged + 1

    def metrics(self) -> dict[str, float]:
        """Return shares of the problems with a judged response, and counts of the batch's draws."""
        kinds = [self._kind(problem) for problem in self._counts]
        seen = len(kinds) or float("nan")
        return {
            "curriculum/solved_share": kinds.count("solved") / seen,
            "curriculum/unsolved_share": kinds.count("unsolved") / seen,
            "curriculum/passed_over": self._passed_over,
            "curriculum/returned": self._returned,
        }

    def _kind(self, problem: str) -> str:
        return kind_of(*self._counts.get(problem, (0, 0)))
