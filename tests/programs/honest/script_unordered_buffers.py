# name: script: unordered buffers
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, sys
print('third')
os.write(1, b'first\n')
sys.stdout.buffer.write(b'second\n')
sys.stdout.buffer.flush()
