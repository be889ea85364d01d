# name: ending: stdout with write and flush only
# input: ""
# output: "1\n"
# ---
import sys
class Out:
    def __init__(self): self.parts = []
    def write(self, text): self.parts.append(text)
    def flush(self): sys.__stdout__.write(''.join(self.parts)); self.parts.clear()
sys.stdout = Out()
print(1)
