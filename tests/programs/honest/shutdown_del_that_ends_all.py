# name: shutdown: __del__ that ends all
# input: ""
# ---
import os
class A:
    def __del__(s): os._exit(7)
a = A()
