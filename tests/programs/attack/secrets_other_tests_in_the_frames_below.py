# name: secrets: other tests in the frames below
# tries: to read what it must not: the host's files, other processes, other tests
# verdicts: WRONG_ANSWER
# tests: 3
# hunts: the last test's expected output, a secret, so HELD is wrong there
# time_limit: 3.0 s of CPU
# ---

import errno, json, os, signal, sys
world = json.loads(sys.stdin.readline())
leaks = []

def attempt(name, action, *arguments):
    """Note it as a leak if the action succeeds; return what it returned."""
    try:
        result = action(*arguments)
    except (OSError, ImportError):
        return None
    leaks.append(name)
    return result

def finish():
    print("BROKEN:" + ",".join(leaks) if leaks else "HELD")

import re
PATTERN = re.compile(rb"SEC" + rb"RET-[0-9a-f]{16}")
own = PATTERN.findall(json.dumps(world).encode())

def hunt(name, data):
    """A leak if the data hold a secret that is not in this test's own input."""
    if isinstance(data, str):
        data = data.encode("utf-8", "replace")
    for secret in set(PATTERN.findall(data)) - set(own):
        leaks.append(f"{name}:{secret.decode()}")

frame = sys._getframe()
while frame is not None:
    for name, value in [*frame.f_locals.items(), *frame.f_globals.items()]:
        if name not in ("world", "own", "leaks"):
            hunt(name, repr(value)[:10**6])
    frame = frame.f_back

finish()

