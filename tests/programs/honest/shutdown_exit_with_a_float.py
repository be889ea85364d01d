# name: shutdown: exit with a float
# input: ""
# ---
import sys
sys.exit(0.0)
