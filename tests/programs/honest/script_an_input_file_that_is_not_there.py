# name: script: an input file that is not there
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, sys
if os.path.exists('input.txt'): sys.stdin = open('input.txt')
try: open('input.txt')
except FileNotFoundError as e: print(e.errno, e.filename)
print('stdin')
