"""What a test process tells of itself is whole whenever the server looks."""

import os
import time

from envs.sandbox.inside.stage import Stage


def test_whoever_looks_sees_all_or_nothing():
    stage = Stage()
    for _ in range(200):
        stage.reset()
        assert stage.begun is None
        begin = time.monotonic()
        pid = os.fork()
        if pid == 0:
            stage.begin()
            os._exit(0)
        while (seen := stage.begun) is None:
            pass
        os.waitpid(pid, 0)
        used, since = seen
        assert 0 < used < 60
        assert begin <= since <= time.monotonic()
        assert stage.refused is None


def test_a_refusal_names_the_outcome():
    stage = Stage()
    for outcome in ("SYNTAX_ERROR", "MEMORY_LIMIT"):
        stage.reset()
        stage.refuse(outcome)
        assert (stage.refused, stage.begun) == (outcome, None)
