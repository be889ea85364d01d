# name: script: a mapped file
# input: "5\r\n7 8\r\nend\r\n"
# ---
import mmap
open('m', 'wb').write(b'hello')
with open('m', 'r+b') as f, mmap.mmap(f.fileno(), 0) as m: m[0] = 74; print(m.find(b'l'), m[:])
print(open('m').read())
