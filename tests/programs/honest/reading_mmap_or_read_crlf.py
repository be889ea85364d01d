# name: reading: mmap or read: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
import mmap, os
try: t = mmap.mmap(0, 0, prot=mmap.PROT_READ)[:]
except (OSError, ValueError): t = os.read(0, 9999)
n, *a = map(int, t.split())
print(n, sum(a), a)
