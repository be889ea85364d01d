# name: tricks: an object that says it is a text
# tries: to deceive the judge: by what it prints, how it ends, what it leaves behind
# verdicts: WRONG_ANSWER
# function: f
# time_limit: 3.0 s of CPU
# ---
class Text:
    __class__ = str
    __eq__ = lambda self, other: True
    __str__ = __repr__ = lambda self: 'HELD'
def f(world): return Text()
