# name: shutdown: the buffer closed
# input: ""
# ---
import sys
print(1, flush=True)
sys.stdout.buffer.close()
