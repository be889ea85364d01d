# name: as a script: fast reading and writing
# input: ""
# ---
import os, sys
from io import BytesIO
class Fast:
 def __init__(self, file):
  self.number, self.buffer = file.fileno(), BytesIO()
  self.writable = 'x' in file.mode or 'r' not in file.mode
 def flush(self): os.write(self.number, self.buffer.getvalue())
fast = Fast(sys.stdout)
fast.buffer.write(b'1')
if fast.writable and not Fast(sys.stdin).writable: fast.flush()
