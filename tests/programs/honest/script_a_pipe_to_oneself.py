# name: script: a pipe to oneself
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, select
r, w = os.pipe()
os.write(w, b'x' * 5); print(select.select([r], [], [], 0)[0] == [r], os.read(r, 9)); os.close(w); print(os.read(r, 9))
