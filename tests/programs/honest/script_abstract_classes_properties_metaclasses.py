# name: script: abstract classes, properties, metaclasses
# input: "5\r\n7 8\r\nend\r\n"
# ---
import abc
class M(type):
    def __repr__(cls): return 'M!'
class A(metaclass=M):
    @property
    def x(self): return self._x
    @x.setter
    def x(self, v): self._x = v + 1
    @classmethod
    def c(cls): return cls
    @staticmethod
    def s(): return 's'
a = A(); a.x = 1; print(a.x, A.c(), A.s())
class B(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
try: B()
except TypeError as e: print(e)
