"""The programs and inputs of the judge's benchmark: what contest answers do, at contest sizes."""

from __future__ import annotations

import random

from envs.sandbox.base import Job, Limits

PROGRAMS = (
    "pass",
    "print(sum(map(int, input().split())))",
    "print(*sorted(map(int, input().split())))",
    "import sys\nwords = sys.stdin.read().split()\nprint(len(words), max(words), min(words))",
    "from collections import Counter\nprint(Counter(input().split()).most_common(3))",
    "total = 0\nfor part in input().split():\n    total = (total * 31 + int(part)) % 1000003\n"
    "print(total)",
    "import math\nvalues = list(map(int, input().split()))\nprint(math.gcd(*values))",
    "values = list(map(int, input().split()))\nsums = [0]\nfor value in values:\n"
    "    sums.append(sums[-1] + value)\nprint(max(sums))",
    "import heapq\nheap = list(map(int, input().split()))\nheapq.heapify(heap)\n"
    "print([heapq.heappop(heap) for _ in range(20)])",
    "sieve = [True] * 2000\nfor i in range(2, 45):\n    if sieve[i]:\n"
    "        sieve[i * i :: i] = [False] * len(sieve[i * i :: i])\nprint(sum(sieve))",
)
LARGE = "import sys\nprint(sys.stdin.buffer.read().count(b'7'))"


def small(inputs: int = 20) -> list[Job]:
    """Each program on `inputs` lines of 1,000 integers."""
    numbers = random.Random(0)
    lines = tuple(
        " ".join(str(numbers.randrange(10**6)) for _ in range(1000)) for _ in range(inputs)
    )
    return [Job(program, lines) for program in PROGRAMS]


def large(megabytes: int = 10) -> list[Job]:
    """One program that does little on one input of `megabytes` MB: what carrying it in costs."""
    numbers = random.Random(1)
    line = " ".join(str(numbers.randrange(10**6)) for _ in range(1000)) + "\n"
    text = (line * (megabytes * 10**6 // len(line) + 1))[: megabytes * 10**6]
    return [Job(LARGE, (text,), Limits(cpu_s=10.0, wall_s=60.0))]
