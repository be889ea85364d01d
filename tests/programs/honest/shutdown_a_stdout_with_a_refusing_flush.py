# name: shutdown: a stdout with a refusing flush
# input: ""
# ---
import sys
class Out:
    def write(s, x): pass
    flush = None
sys.stdout = Out()
