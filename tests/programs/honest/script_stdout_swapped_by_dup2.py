# name: script: stdout swapped by dup2
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, sys
saved = os.dup(1)
r, w = os.pipe()
os.dup2(w, 1)
print('into the pipe', flush=True)
os.dup2(saved, 1)
print(os.read(r, 99))
