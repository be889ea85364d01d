# name: expression: 81 weakref
# input: ""
# ---
import weakref
print((lambda f: weakref.ref(f)() is f)(print), len(weakref.WeakValueDictionary()), weakref.getweakrefcount(print) >= 0)
