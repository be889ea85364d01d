# name: script: /dev/stdout after flush
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
print(1, flush=True)
with open('/dev/stdout', 'w') as f: print(2, file=f)
print(3)
