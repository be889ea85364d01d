# name: tricks: exit inside the call
# tries: to deceive the judge: by what it prints, how it ends, what it leaves behind
# verdicts: WRONG_ANSWER
# function: f
# time_limit: 3.0 s of CPU
# ---
import os
def f(world): os._exit(0)
