# name: streams: stdout reconfigured
# input: ""
# output: "1\r\n"
# ---
import sys
sys.stdout.reconfigure(newline='\r\n', line_buffering=True)
print(1)
