# name: shutdown: __stdout__ closed below
# input: ""
# ---
import os, sys
sys.stdout = None
sys.__stdout__.write('x')
os.close(1)
