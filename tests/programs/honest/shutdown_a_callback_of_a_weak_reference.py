# name: shutdown: a callback of a weak reference
# input: ""
# ---
import weakref
class A: pass
a = A()
r = weakref.ref(a, lambda _: print('gone'))
