# name: shutdown: a stderr that cannot flush
# input: ""
# ---
import sys
class Out:
    def write(s, x): pass
    def flush(s): raise ValueError
sys.stderr = Out()
print(1)
