# name: shutdown: exit 256
# input: ""
# ---
import sys
sys.exit(256)
