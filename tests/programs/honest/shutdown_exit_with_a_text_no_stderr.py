# name: shutdown: exit with a text, no stderr
# input: ""
# ---
import sys
sys.stderr = None
sys.exit('x')
