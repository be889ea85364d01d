# name: shutdown: __del__ that revives
# input: ""
# ---
class A:
    def __init__(s, n): s.n = n
    def __del__(s): print(s.n)
class B: pass
A.__del__ = lambda s: setattr(B, 'b', s)
a = A(1)
