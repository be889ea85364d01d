"""Attacks on the machine: its processes, memory, disk, time and patience."""

from tests.envs.attacks.base import Attack, ends, kernel_probe, probe

ATTACKS = {
    "fork bomb": ends(
        """
while True:
    try:
        os.fork()
    except OSError:
        pass
""",
        "TIME_LIMIT",
        "RUNTIME_ERROR",
        "MEMORY_LIMIT",
    ),
    "fork bomb that answers first": ends(
        """
print("HELD", flush=True)
for _ in range(12):
    try:
        os.fork()
    except OSError:
        break
if os.getpid() != 1:
    os._exit(0)
""",
        "ACCEPTED",
        "WRONG_ANSWER",
    ),
    "thread bomb": probe(
        """
import threading, time
for count in range(5000):
    try:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except (RuntimeError, MemoryError):
        break
else:
    leaks.append("5000-threads")
"""
    ),
    "work split over children": ends(
        """
import time
for _ in range(4):
    try:
        child = os.fork()
    except OSError:
        break
    if child == 0:
        while time.process_time() < 0.4:
            pass
        os._exit(0)
while time.process_time() < 0.3:
    pass
while True:
    try:
        os.wait()
    except OSError:
        break
times = os.times()
print("HELD" if times.children_user < 0.1 else "SPLIT")
""",
        "ACCEPTED",  # no child came to be
        "TIME_LIMIT",
        time_limit_s=0.5,  # above what one process uses, below what it uses with its children
    ),
    "memory hog": ends(
        """
held = []
while True:
    held.append(bytearray(1 << 20))
""",
        "MEMORY_LIMIT",
    ),
    "memory hog in one piece": ends("x = 'a' * (1 << 40)", "MEMORY_LIMIT"),
    "memory hog in threads": ends(
        """
import threading
held = []
def grow():
    while True:
        held.append(bytearray(1 << 20))
threads = [threading.Thread(target=grow) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(1)
""",
        "MEMORY_LIMIT",
        "RUNTIME_ERROR",
    ),
    "memory hog in children": ends(
        """
import time
for _ in range(6):
    try:
        if os.fork() == 0:
            held = bytearray(b"x") * (48 << 20)
            time.sleep(0.3)
            os._exit(0)
    except OSError:
        break
time.sleep(0.4)
print("HELD")
""",
        "ACCEPTED",
        "MEMORY_LIMIT",
        "RUNTIME_ERROR",
    ),
    "mmap hog": ends(
        """
import mmap
held = []
while True:
    held.append(mmap.mmap(-1, 16 << 20))
    held[-1].write(b"x" * (16 << 20))
""",
        "MEMORY_LIMIT",
        "RUNTIME_ERROR",
    ),
    "shared-memory hog": probe(
        """
written = 0
def fill(descriptor):
    global written
    block = b"x" * (1 << 20)
    while written < 1 << 29:
        written += os.write(descriptor, block)
for number in range(200):
    try:
        descriptor = os.memfd_create(f"hog{number}")
        fill(descriptor)
    except OSError:
        continue
try:
    from multiprocessing import shared_memory
    for number in range(64):
        block = shared_memory.SharedMemory(create=True, size=8 << 20)
        block.buf[:] = b"x" * len(block.buf)
        written += len(block.buf)
except (OSError, ImportError):
    pass
if written > 256 << 20:
    leaks.append(f"{written >> 20}-MB")
"""
    ),
    "disk filler on every writable path": probe(
        """
written = 0
block = b"x" * (1 << 20)
for folder, folders, files in os.walk("/"):
    if folder in ("/proc", "/sys"):
        folders.clear()
        continue
    name = os.path.join(folder, "filler-" + world["nonce"])
    try:
        with open(name, "wb", buffering=0) as file:
            for _ in range(64):
                written += file.write(block)
    except OSError:
        pass
if written > 32 << 20:
    leaks.append(f"{written >> 20}-MB")
"""
    ),
    "own folder filled by files": ends(
        """
block, written = b"x" * (1 << 20), 0
def fill(name):
    global written
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT)
    try:
        while written < 1 << 30:
            written += os.write(descriptor, block)
    except OSError as error:
        return error.errno == errno.ENOSPC
    finally:
        if name.startswith("unlinked"):
            os.unlink(name)
        else:
            os.close(descriptor)
for number in range(500):
    if fill(f"linked-{number}") or fill(f"unlinked-{number}"):
        break
print("HELD" if written < 64 << 20 else f"BROKEN: {written >> 20} MB")
""",
        "ACCEPTED",
        "OUTPUT_LIMIT",  # where the server looks from time to time
        time_limit_s=10.0,
    ),
    "own folder that is hard to empty": probe(
        """
home = os.getcwd()
os.remove("main.py")
os.makedirs("main.py/main.py/x")
for name in (b"\\xff" * 200, "-rf", "new\\nline", "moved-1", "moved-2"):
    os.mkdir(name)
    open(os.path.join(os.fsencode(name), b"main.py"), "w").close()
for number in range(100):
    os.mkdir("deeper" * 30)
    os.chdir("deeper" * 30)
for mask in (0o777, 0o477, 0o377):
    os.umask(mask)
    os.mkdir(f"closed-{mask}")
    os.mkdir(f"{home}/closed-{mask}")
os.close(os.open("locked", os.O_WRONLY | os.O_CREAT, 0))
""",
        tests=3,
    ),
    "own folder with a folder in the program's place": probe(
        'os.remove("main.py")\nos.makedirs("main.py/main.py")', tests=3
    ),
    "own folder that hides its files": ends(
        """
os.umask(0o477)
os.mkdir("hidden")
os.umask(0o22)
os.chdir("hidden")
written, block = 0, b"x" * (1 << 20)
try:
    for number in range(200):
        with open(str(number), "wb", buffering=0) as file:
            written += file.write(block)
except OSError:
    pass
print("HELD" if written < 64 << 20 else f"BROKEN: {written >> 20} MB")
""",
        "ACCEPTED",
        "OUTPUT_LIMIT",
        time_limit_s=10.0,
    ),
    "own folder filled by names": ends(
        """
count = 0
try:
    for count in range(1 << 17):
        os.close(os.open(f"{count}-" + "x" * 200, os.O_WRONLY | os.O_CREAT))
except OSError:
    pass
print("HELD" if count < 1000 else f"BROKEN: {count} files")
""",
        "ACCEPTED",
        "OUTPUT_LIMIT",
        time_limit_s=10.0,
    ),
    "kernel memory in pairs of sockets and in pipes": probe(
        """
import socket
written = 0
def fill(descriptor):
    global written
    os.set_blocking(descriptor, False)
    try:
        while True:
            written += os.write(descriptor, bytes(1 << 16))
    except BlockingIOError:
        pass
held = []
try:
    while True:
        held.append(socket.socketpair())
        fill(held[-1][0].fileno()), fill(held[-1][1].fileno())
except OSError:
    pass
if written > 96 << 20:
    leaks.append(f"{written >> 20}-MB")
"""
    ),
    "infinite loop": ends("while True: pass", "TIME_LIMIT"),
    "infinite loop in threads": ends(
        """
import threading
def spin():
    while True: pass
for _ in range(4):
    threading.Thread(target=spin).start()
""",
        "TIME_LIMIT",
    ),
    "sleep forever": ends("import time\ntime.sleep(10**6)", "TIME_LIMIT"),
    "wait forever on a lock": ends(
        "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()", "TIME_LIMIT"
    ),
    "loop ignoring every signal": ends(
        """
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True: pass
""",
        "TIME_LIMIT",
    ),
    "loop inside an exit handler": ends(
        """
import atexit
def linger():
    while True: pass
atexit.register(linger)
print("HELD")
""",
        "TIME_LIMIT",
    ),
    "1 GB on stdout": ends(
        "for _ in range(1024): os.write(1, b'x' * (1 << 20))", "OUTPUT_LIMIT", "RUNTIME_ERROR"
    ),
    "1 GB on stderr": ends(
        "print('HELD', flush=True)\nfor _ in range(1024): os.write(2, b'x' * (1 << 20))",
        "OUTPUT_LIMIT",
        "RUNTIME_ERROR",
    ),
    "a sparse file on stdout": ends(
        "os.lseek(1, 1 << 40, os.SEEK_SET)\nos.write(1, b'x')\nos.ftruncate(1, 1 << 40)",
        "OUTPUT_LIMIT",
        "RUNTIME_ERROR",
    ),
    "stdin never read": Attack("print('HELD')", padding=24 << 20),
    "stdout closed": ends("os.close(1)\nprint('HELD')", "WRONG_ANSWER", "RUNTIME_ERROR"),
    "stdout closed after the answer": ends(
        "print('HELD', flush=True)\nos.close(0)\nos.close(1)\nos.close(2)",
        "ACCEPTED",
        "RUNTIME_ERROR",
    ),
    "endless recursion": ends(
        """
sys.setrecursionlimit(10**9)
def deeper(n):
    return deeper(n + 1) + 1
deeper(0)
""",
        "MEMORY_LIMIT",
        "RUNTIME_ERROR",
        "TIME_LIMIT",
    ),
    "endless recursion in C": ends(
        """
sys.setrecursionlimit(10**9)
class Key(int):
    def __hash__(self):
        return hash((Key(self),))
hash(Key(1))
""",
        "MEMORY_LIMIT",
        "RUNTIME_ERROR",
        "TIME_LIMIT",
    ),
    "nesting that exhausts the compiler": ends(
        "eval('(' * 10**6)", "RUNTIME_ERROR", "MEMORY_LIMIT"
    ),
    "huge integer": ends("print(7 ** (7 ** 11))", "TIME_LIMIT", "MEMORY_LIMIT"),
    "huge integer as text": ends("print(str((1 << (1 << 25)) - 1))", "TIME_LIMIT", "MEMORY_LIMIT"),
    "regular expression that explodes": ends(
        "import re\nre.match('(a+)+$', 'a' * 60 + 'b')", "TIME_LIMIT"
    ),
    "huge page of zeros on stdin's file": probe(
        """
try:
    os.lseek(0, 1 << 32, os.SEEK_SET)
    os.write(0, b"x")
    if os.fstat(0).st_size > 64 << 20:
        leaks.append("stdin-grown")
except OSError:
    pass
"""
    ),
    "limits raised": kernel_probe(
        """
import resource
def raise_limit(number):
    try:
        resource.setrlimit(number, (1 << 40, 1 << 40))
    except ValueError as refused:
        raise OSError(errno.EPERM, name) from refused
for name in ("CPU", "AS", "FSIZE", "NOFILE", "NPROC", "MEMLOCK", "CORE"):
    number = getattr(resource, f"RLIMIT_{name}")
    if resource.getrlimit(number)[1] != resource.RLIM_INFINITY:
        attempt(name, raise_limit, number)
attempt("nice", os.nice, -10)
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    leaks.append("real-time")
except OSError:
    pass
attempt("oom", lambda: open("/proc/self/oom_score_adj", "w").write("-1000"))
if libc.mlockall(3) == 0:
    leaks.append("mlockall")
"""
    ),
}
