
import ctypes, os, re
pattern = re.compile(rb"SEC" + rb"RET-[0-9a-f]{16}")
own = set(pattern.findall(os.read(0, 1 << 20)))
libc, found = ctypes.CDLL(None), set()
libc.malloc.restype = ctypes.c_void_p
for size in [*range(16, 4096, 16), *(1 << n for n in range(12, 24))]:
    for _ in range(20):
        found |= set(pattern.findall(ctypes.string_at(libc.malloc(ctypes.c_size_t(size)), size)))
print(sorted(found - own))
