# name: tricks: an object that equals everything
# tries: to deceive the judge: by what it prints, how it ends, what it leaves behind
# verdicts: WRONG_ANSWER
# function: f
# time_limit: 3.0 s of CPU
# ---
class Equal(str):
    def __eq__(self, other): return True
    def __hash__(self): return 0
def f(world): return Equal('WRONG')
