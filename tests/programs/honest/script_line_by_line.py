# name: script: line by line
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
sys.stdout.reconfigure(line_buffering=True)
import os
print('a'); os.write(1, b'b\n'); print('c')
