"""The embedded sandbox with real programs: behaviour of scripts, and how they end."""

import hashlib
import json
import sys
from dataclasses import replace

import pytest

from envs.sandbox.base import Job, Limits, Outcome
from tests.envs.sandboxes import open_one

# Wide, since a busy machine is slow; what is to run into a limit of time has narrow ones.
LIMITS = Limits(cpu_s=5.0, wall_s=30.0, memory_mb=256, output_mb=4)
NARROW = {"endless loop": replace(LIMITS, cpu_s=0.3), "sleep": replace(LIMITS, wall_s=0.4)}


@pytest.fixture(scope="module", params=["namespaces", "landlock"])
def sandbox(request):
    with open_one(request.param) as sandbox:
        yield sandbox
        assert sandbox.replaced == 0


def execute(sandbox, program, *inputs, limits=LIMITS, fn_name=None):
    job = Job(program, inputs or ("",), limits, fn_name)
    [(index, executions)] = sandbox.run([job], lambda *_: True)
    assert index == 0
    return executions


# What a plain python3 does not allow, and many judges do.
KINDER = {
    "stdin is a file": ("import mmap\nprint(mmap.mmap(0, 0).readline())", b"b'1 2\\n'\n"),
    "long integers": ("print(len(str(10**20000)), int('9' * 10000) % 7)", b"20001 3\n"),
    "deep recursion through C": (
        "import functools, sys\nsys.setrecursionlimit(10**6)\n"
        "@functools.lru_cache(None)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(20000))",
        b"20000\n",
    ),
}


@pytest.mark.parametrize("case", KINDER)
def test_it_is_kinder_than_plain_python(sandbox, case):
    if case == "deep recursion through C" and (3, 12) <= sys.version_info < (3, 14):
        pytest.skip("these interpreters bound recursion through C themselves")
    program, expected = KINDER[case]
    [execution] = execute(sandbox, program, "1 2\n3")
    assert (execution.outcome, execution.stdout) == (Outcome.FINISHED, expected)


ENDINGS = {
    "exception": ("1 / 0", Outcome.RUNTIME_ERROR, 1),
    "exit code": ("print(1)\nimport sys\nsys.exit(3)", Outcome.RUNTIME_ERROR, 3),
    "exit text": ("exit('wrong')", Outcome.RUNTIME_ERROR, 1),
    "abort": ("import os\nos.abort()", Outcome.RUNTIME_ERROR, None),
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", Outcome.RUNTIME_ERROR, -11),
    "stdout closed below": ("import os\nprint(1)\nos.close(1)", Outcome.RUNTIME_ERROR, 120),
    "multiprocessing": (
        "import multiprocessing\nmultiprocessing.Process(target=print).start()",
        Outcome.RUNTIME_ERROR,
        1,
    ),
    "subprocess": ("import subprocess\nsubprocess.run(['ls'])", Outcome.RUNTIME_ERROR, 1),
    "syntax": ("print(", Outcome.SYNTAX_ERROR, None),
    "null byte": ("print(1)\0", Outcome.SYNTAX_ERROR, None),
    "nesting beyond the compiler": ("x = " + "+".join(["1"] * 200_000), Outcome.SYNTAX_ERROR, None),
    "endless loop": ("while True: pass", Outcome.TIME_LIMIT, -9),
    "sleep": ("import time\ntime.sleep(60)", Outcome.TIME_LIMIT, -9),
    "one huge list": ("x = [0] * 10**9", Outcome.MEMORY_LIMIT, 1),
    "growing": ("x = []\nwhile True: x.append(bytearray(10**6))", Outcome.MEMORY_LIMIT, 1),
    "above the limit, unharmed": ("x = b'x' * (300 * 10**6)", Outcome.MEMORY_LIMIT, 0),
    "endless output": ("while True: print('x' * 1000)", Outcome.OUTPUT_LIMIT, None),
    "endless errors": (
        "import sys\nwhile True: sys.stderr.write('x' * 1000)",
        Outcome.OUTPUT_LIMIT,
        None,
    ),
}


@pytest.mark.parametrize("case", ENDINGS)
def test_how_programs_end(sandbox, case):
    program, outcome, code = ENDINGS[case]
    [execution] = execute(sandbox, program, limits=NARROW.get(case, LIMITS))
    assert execution.outcome is outcome, execution
    if code is not None:
        assert execution.exit_code == code
    assert len(execution.stdout) <= LIMITS.output_mb << 20
    assert len(execution.stderr) <= 2000


def test_the_output_limit_is_exact(sandbox):
    limit = LIMITS.output_mb << 20
    program = "import sys\nsys.stdout.write('x' * int(input()))"
    fits, exceeds = execute(sandbox, program, str(limit), str(limit + 1))
    assert fits.outcome is Outcome.FINISHED
    assert len(fits.stdout) == limit
    assert exceeds.outcome is Outcome.OUTPUT_LIMIT


def test_a_large_input_arrives_whole(sandbox):
    text = "0123456789" * 1_000_000
    program = "import hashlib\nprint(hashlib.sha1(open(0, 'rb').read()).hexdigest())"
    large, small = execute(sandbox, program, text, "x")
    assert large.stdout.decode().strip() == hashlib.sha1(text.encode()).hexdigest()
    assert small.stdout.decode().strip() == hashlib.sha1(b"x").hexdigest()


def test_large_inputs_that_are_not_run_are_dropped_without_memory(sandbox):
    text = "x" * 20_000_000
    limits = replace(LIMITS, memory_mb=16)
    outcomes = [e.outcome for e in execute(sandbox, "1 / 0", "", text, text, limits=limits)]
    assert outcomes == [Outcome.RUNTIME_ERROR] * 3
    [execution] = execute(sandbox, "print(", text, limits=limits)
    assert execution.outcome is Outcome.SYNTAX_ERROR


def test_cpu_time_is_measured_and_judged_not_wall_time(sandbox):
    sleeper, worker = execute(
        sandbox,
        "import time\nif input() == 's': time.sleep(0.5)\n"
        "else:\n while time.process_time() < 0.3: pass",
        "s",
        "w",
    )
    assert sleeper.outcome is Outcome.FINISHED
    assert sleeper.cpu_s < 0.3 < 0.5 <= sleeper.wall_s
    assert worker.outcome is Outcome.FINISHED
    assert 0.25 < worker.cpu_s < 0.9


def test_cpu_time_of_compiling_is_measured_and_in_no_limit_of_a_test(sandbox):
    levels = "".join(f"{' ' * n}try: abs(1)\n{' ' * n}finally:\n" for n in range(15))
    program = f"{levels}{' ' * 15}print(1)"  # each level doubles what the compiler writes
    executions = execute(sandbox, program, "", "", "", limits=replace(LIMITS, cpu_s=1))
    assert [execution.outcome for execution in executions] == [Outcome.FINISHED] * 3
    # as one-shot, and once more for the runner of all other tests
    assert [execution.compile_s > 0.04 for execution in executions] == [True, True, False]


def test_programs_run_the_same_every_time(sandbox):
    program = "import random\nprint(random.random(), set('abcdef'), hash('x'))"
    executions = execute(sandbox, program, "", "") + execute(sandbox, program, "")
    assert len({execution.stdout for execution in executions}) == 1


CALLS = {
    "tuple": ("def f(a): return a, 'x'", [1], {"": ["tuple", [1, "x"]]}),
    "iterator": ("def f(a): return map(str, a)", [[1, 2]], {"": ["other", "map", True]}),
    "argument that JSON lacks": (
        "def f(a): return {a[0]: type(a).__name__}",
        [{"": ["tuple", [2]]}],
        {"": ["dict", [[2, "tuple"]]]},
    ),
    "long integer": ("def f(n): return 16 ** n", [5000], {"": ["int", "0x1" + "0" * 5000]}),
}


@pytest.mark.parametrize("case", CALLS)
def test_functions_are_called(sandbox, case):
    program, arguments, expected = CALLS[case]
    [execution] = execute(sandbox, program, json.dumps(arguments), fn_name="f")
    assert execution.outcome is Outcome.FINISHED, execution.stderr
    assert json.loads(execution.stdout) == expected


def test_a_call_that_fails_is_a_runtime_error(sandbox):
    for program in ("def g(): pass", "def f(): 1 / 0"):
        [execution] = execute(sandbox, program, "[]", fn_name="f")
        assert execution.outcome is Outcome.RUNTIME_ERROR
        assert execution.stdout == b""
