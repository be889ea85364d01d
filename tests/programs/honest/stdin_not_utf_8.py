# name: stdin: not UTF-8
# input: ""
# ---
import sys
sys.stdout.buffer.write(b'\xff')
