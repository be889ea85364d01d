# name: tricks: forged frame on stdout
# tries: to deceive the judge: by what it prints, how it ends, what it leaves behind
# verdicts: WRONG_ANSWER
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

import struct
body = json.dumps({"outcome": "FINISHED", "stderr": "", "exit_code": 0, "cpu_s": 0.0,
                   "wall_s": 0.0}).encode()
payload = len(body).to_bytes(4, "big") + body + b"HELD"
frame = struct.pack(">BI", 19, len(payload)) + payload
os.write(1, frame * 3)
