"""Sandboxes and verdicts on disk that the tests of this folder share."""

import pytest

from envs.judge.verdict_cache import VerdictCache
from envs.sandbox import SandboxConfig, open_sandbox
from envs.sandbox.base import Sandbox


@pytest.fixture(scope="module")
def real_sandbox():
    """The embedded sandbox, for what does not depend on the form."""
    with open_sandbox(SandboxConfig(kind="embedded", workers=2)) as sandbox:
        yield sandbox


class Recorder(Sandbox):
    """A real sandbox whose jobs are recorded, and some of whose executions can be replaced."""

    name = strength = "recorder"

    def __init__(self, inner):
        self.inner = inner
        self.batches = []
        self.replace = lambda batch, job, execution: execution

    def run(self, jobs, keep_going):
        batch = len(self.batches)
        self.batches.append([job.program for job in jobs])
        seen = [[] for _ in jobs]

        def asked(at, position, execution):
            seen[at].append(self.replace(batch, jobs[at], execution))
            return keep_going(at, position, seen[at][-1])

        for at, executions in self.inner.run(jobs, asked):
            yield at, seen[at] + executions[len(seen[at]) :]

    def close(self):
        self.inner.close()


@pytest.fixture
def recorder(real_sandbox):
    return Recorder(real_sandbox)


@pytest.fixture
def verdicts(tmp_path):
    opened = VerdictCache(tmp_path / "new" / "verdicts.sqlite")
    yield opened
    opened.close()
