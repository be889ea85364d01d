# name: tricks: prints inside the call
# tries: to deceive the judge: by what it prints, how it ends, what it leaves behind
# verdicts: ACCEPTED
# function: f
# time_limit: 3.0 s of CPU
# ---
def f(world):
    print('"WRONG"')
    return 'HELD'
