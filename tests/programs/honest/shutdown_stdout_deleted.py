# name: shutdown: stdout deleted
# input: ""
# ---
import sys
print(1)
del sys.stdout
