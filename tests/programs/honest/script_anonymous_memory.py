# name: script: anonymous memory
# input: "5\r\n7 8\r\nend\r\n"
# ---
import mmap
m = mmap.mmap(-1, 1 << 16)
m.write(b'abc'); m.seek(0); print(m.read(4), len(m), m.size())
