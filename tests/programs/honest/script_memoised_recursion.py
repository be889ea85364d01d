# name: script: memoised recursion
# input: "5\r\n7 8\r\nend\r\n"
# ---
from functools import cache, lru_cache, cached_property, singledispatch
@lru_cache(None)
def f(n): return n if n < 2 else f(n - 1) + f(n - 2)
print(f(300), f.cache_info())
class A:
    @cached_property
    def x(self): print('once'); return 5
a = A(); print(a.x + a.x)
@singledispatch
def g(x): return 'any'
@g.register
def _(x: int): return 'int'
print(g(1), g('a'))
