# name: shutdown: stdout detached and kept
# input: ""
# ---
import sys
out = sys.stdout.detach()
out.write(b'x')
