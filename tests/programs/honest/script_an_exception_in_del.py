# name: script: an exception in __del__
# input: "5\r\n7 8\r\nend\r\n"
# ---
class A:
    def __del__(self): raise ValueError
A()
print(1)
