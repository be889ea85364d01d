# name: script: stdout duplicated
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os
print(1, flush=True)
os.write(os.dup(1), b'2\n')
with os.fdopen(os.dup(1), 'w') as f: f.write('3\n')
print(4)
