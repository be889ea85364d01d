# name: ending: weakref.finalize
# input: ""
# output: "1\nend\n"
# ---
import weakref
class A: pass
a = A()
weakref.finalize(a, print, 'end')
print(1)
