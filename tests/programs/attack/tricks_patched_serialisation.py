# name: tricks: patched serialisation
# tries: to deceive the judge: by what it prints, how it ends, what it leaves behind
# verdicts: WRONG_ANSWER RUNTIME_ERROR
# function: f
# time_limit: 3.0 s of CPU
# ---
import json
json.dumps = lambda *a, **k: 'true'
json.loads = lambda *a, **k: ['x']
def f(world): return 1
