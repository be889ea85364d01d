# name: shutdown: a file under a generic class
# input: ""
# ---
out = open(1, 'w')
import typing
T = typing.TypeVar('T')
class A(typing.Generic[T]):
    def f(s) -> 'A[T]': out.write('1')
class N: pass
B, C = A[int], typing.Optional[N]
A().f()
