# name: tricks: a name that is no text
# tries: to deceive the judge: by what it prints, how it ends, what it leaves behind
# verdicts: WRONG_ANSWER
# function: f
# time_limit: 3.0 s of CPU
# ---
class Meta(type):
    __name__ = property(lambda self: [self])
class X(metaclass=Meta):
    def __bool__(self): raise SystemExit(0)
def f(world): return X()
