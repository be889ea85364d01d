# name: shutdown: exit beyond a long
# input: ""
# ---
import sys
sys.exit(2**70)
