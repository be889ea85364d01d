# name: secrets: other tests in the own folder
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

names = os.listdir()
if names != ["main.py"]:
    leaks.append(f"folder:{names}")
if "".join(open("main.py").readlines()[-3:]).find("left behind") < 0:
    leaks.append("another-program")
secret = json.dumps(world).encode()
for number in range(6):
    with open(f"left-{number}", "wb") as file:
        file.truncate(1 << 20)
    with open(f"left-{number}", "r+b") as file:
        hunt("file", file.read())
        file.seek(0), file.write(secret * 99)
deep = "."
for number in range(200):
    os.mkdir(deep := f"{deep}/{'d' * 12}") if number < 100 else None
os.chdir(deep)
open("inside", "wb").write(secret)
os.umask(0o777)
os.mkdir("closed")
os.open("locked", os.O_WRONLY | os.O_CREAT, 0)
os.rename("/".join([".."] * 100) + "/main.py", "taken")
unnamed = open("unnamed", "wb")
unnamed.write(secret * 99), unnamed.flush(), os.unlink("unnamed")
# left behind

finish()

