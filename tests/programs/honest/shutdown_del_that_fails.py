# name: shutdown: __del__ that fails
# input: ""
# ---
class A:
    def __del__(s): 1 / 0
a = A()
print(1)
