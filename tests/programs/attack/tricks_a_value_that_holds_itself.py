# name: tricks: a value that holds itself
# tries: to deceive the judge: by what it prints, how it ends, what it leaves behind
# verdicts: WRONG_ANSWER MEMORY_LIMIT RUNTIME_ERROR
# function: f
# time_limit: 3.0 s of CPU
# ---
def f(world):
    x = []
    x.append(x)
    return x
