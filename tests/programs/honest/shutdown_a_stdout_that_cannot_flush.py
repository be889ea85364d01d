# name: shutdown: a stdout that cannot flush
# input: ""
# ---
import sys
class Out:
    def write(s, x): pass
    def flush(s): raise ValueError
sys.stdout = Out()
