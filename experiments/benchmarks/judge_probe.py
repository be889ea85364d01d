"""Judge workloads with the `envs` of the checkout that this runs in, in a sandbox of a kind.

stdin: a JSON line with all workloads, then the name of a workload on each line. stdout: a JSON line
for each name, the number of programs of one pass. `judge.py` measures its time and copies this file
into other checkouts, so it imports nothing but `envs`.
"""

from __future__ import annotations

import json
import sys

from envs import Judge, Problem, SandboxConfig, Submission, Test, open_sandbox


def main() -> None:
    """Judge until stdin ends. A verdict other than the label raises RuntimeError."""
    workloads = json.loads(sys.stdin.readline())
    with open_sandbox(SandboxConfig(kind=sys.argv[1])) as sandbox:  # type: ignore[arg-type]
        judges = {name: Judge(sandbox) for name in workloads}  # each stays warm
        for number, line in enumerate(sys.stdin):
            name = json.loads(line)
            problems = [
                Problem(f"{name}/{i}", "", (), tuple(Test(*pair) for pair in tests))
                for i, tests in enumerate(workloads[name]["tests"])
            ]
            responses = workloads[name]["responses"]  # problem, program, whether it is right
            # The number makes the programs new to the judge's cache.
            given = [
                Submission(problems[i], f"{program}\n# {number}") for i, program, _ in responses
            ]
            for judged, (_, program, right) in zip(
                judges[name].judge(given), responses, strict=True
            ):
                if (judged.verdict == "ACCEPTED") is not right:
                    raise RuntimeError(f"{judged.verdict}, {judged.detail}: {program}")
            print(json.dumps(len(given)), flush=True)


if __name__ == "__main__":
    main()
