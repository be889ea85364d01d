# name: shutdown: stdout detached and left
# input: ""
# ---
import sys
sys.stdout.detach().write(b'x')
