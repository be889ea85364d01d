# name: shutdown: exit with an empty text
# input: ""
# ---
import sys
sys.exit('')
