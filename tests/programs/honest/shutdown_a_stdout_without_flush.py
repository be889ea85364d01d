# name: shutdown: a stdout without flush
# input: ""
# ---
import sys
class Out:
    def write(s, x): pass
sys.stdout = Out()
