# name: tricks: an object that is no value
# tries: to deceive the judge: by what it prints, how it ends, what it leaves behind
# verdicts: WRONG_ANSWER
# function: f
# time_limit: 3.0 s of CPU
# ---
def f(world): return f
