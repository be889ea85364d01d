# name: shutdown: both deleted
# input: ""
# ---
import sys
print(1)
del sys.stdout, sys.__stdout__
