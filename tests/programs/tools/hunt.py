
import ctypes, gc, os, re, sys
PATTERN = re.compile(rb"SEC" + rb"RET-[0-9a-f]{16}")

def look(data):
    data = data if isinstance(data, bytes) else repr(data).encode("utf-8", "replace")
    return PATTERN.search(data) is not None

def hunt():
    containers = (one for one in gc.get_objects() if type(one) in (list, dict))
    found = [type(one).__name__ for one in containers if look(one)]
    frame = sys._getframe()
    while frame:
        found += [name for name, value in frame.f_locals.items() if look(value)]
        frame = frame.f_back
    for folder in ("/stdio", "/proc/self/fd", "/dev/fd", "/tmp", "/dev/shm", "."):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                with open(f"{folder}/{name}", "rb") as file:
                    found += [name] if look(file.read(1 << 20)) else []
            except OSError:
                pass
    for number in range(3, 64):
        try:
            found += [number] if look(os.pread(number, 1 << 20, 0)) else []
        except OSError:
            pass
    heap = ctypes.CDLL(None).malloc
    heap.restype = ctypes.c_void_p
    for size in [16, 64, 256, 1024, 4096, 1 << 16, 1 << 20] * 30:
        block = ctypes.string_at(heap(ctypes.c_size_t(size)), size)
        found += [f"heap {size}"] if look(block) else []
    try:
        with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
            for line in maps:
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                memory.seek(start)
                readable = line.split()[1][0] == "r"
                found += [line] if readable and look(memory.read(end - start)) else []
    except OSError:
        pass
    return found
