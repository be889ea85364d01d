# name: script: decorators and closures
# input: "5\r\n7 8\r\nend\r\n"
# ---
import functools, time
def timed(f):
    @functools.wraps(f)
    def g(*a, **k): time.perf_counter(); return f(*a, **k)
    return g
@timed
def add(a, b=1): 'doc'; return a + b
print(add(1), add.__name__, add.__doc__, add.__wrapped__(2))
