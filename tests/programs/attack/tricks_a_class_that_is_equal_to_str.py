# name: tricks: a class that is equal to str
# tries: to deceive the judge: by what it prints, how it ends, what it leaves behind
# verdicts: WRONG_ANSWER RUNTIME_ERROR
# function: f
# time_limit: 3.0 s of CPU
# ---
class Meta(type):
    __eq__ = lambda self, other: True
    __hash__ = lambda self: hash(str)
    __instancecheck__ = __subclasscheck__ = lambda self, other: True
class Text(metaclass=Meta):
    __str__ = __repr__ = lambda self: 'HELD'
def f(world): return [Text()], Text()
