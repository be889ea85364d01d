"""Attacks on what a program must not read: the host's files, other processes, other tests."""

from envs.problem import Verdict
from tests.envs.attacks.base import kernel_probe, probe

# The inputs of a problem's tests, and the expected output of its last, hold such tokens.
_HUNT = '''
import re
PATTERN = re.compile(rb"SEC" + rb"RET-[0-9a-f]{16}")
own = PATTERN.findall(json.dumps(world).encode())

def hunt(name, data):
    """A leak if the data hold a secret that is not in this test's own input."""
    if isinstance(data, str):
        data = data.encode("utf-8", "replace")
    for secret in set(PATTERN.findall(data)) - set(own):
        leaks.append(f"{name}:{secret.decode()}")
'''


def _hunter(body: str):
    """Runs on every test of its problem, each with another secret in its input."""
    wrong = frozenset({Verdict.WRONG_ANSWER})
    return probe(_HUNT + body, tests=3, verdicts=wrong, hunts=True)


ATTACKS = {
    "read /etc/passwd": probe(
        """
import hashlib
for path, digest in world["host_files"].items():
    try:
        with open(path, "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() == digest:
                leaks.append(path)
    except OSError:
        pass
"""
    ),
    "read the host's file by other ways": probe(
        """
roots = ["", "/proc/self/root", "/proc/1/root", "/proc/self/cwd", "/proc/1/cwd", "/..",
         "/../../..", "/proc/thread-self/root", "/oldroot", "/old_root", "/.old", "/mnt", "/host",
         "/rootfs", "/proc/self/task/1/root", "/tmp", "/dev/fd/.."]
for root in roots:
    attempt(root or "/", open, root + world["file"])
for descriptor in range(256):
    for path in (world["file"].lstrip("/"), "../" * 12 + world["file"].lstrip("/")):
        attempt(f"openat-{descriptor}", lambda: os.open(path, os.O_RDONLY, dir_fd=descriptor))
"""
    ),
    "list the host's folders": probe(
        """
folder = os.path.dirname(world["file"])
attempt("list", os.listdir, folder)
attempt("stat", os.stat, folder)
try:
    # The interpreter may itself lie in the home folder: then its path is there, and nothing else.
    if len(world["home_names"]) > 1 and sorted(os.listdir(world["home"])) == world["home_names"]:
        leaks.append("home")
except OSError:
    pass
try:
    if os.path.basename(folder) in os.listdir(os.path.dirname(folder)):
        leaks.append("parent")
except OSError:
    pass
"""
    ),
    "read /proc/1": probe(
        """
for name in ("environ", "mem", "maps", "stack", "auxv", "syscall", "fd/0", "fd/1", "exe"):
    attempt(f"1-{name}", lambda: open(f"/proc/1/{name}", "rb").read(1))
for name in ("root", "cwd", "fd", "map_files", "fdinfo"):
    attempt(f"1-{name}", os.listdir, f"/proc/1/{name}")
"""
    ),
    "read other processes": probe(
        """
try:
    others = [pid for pid in os.listdir("/proc") if pid.isdecimal()]
except OSError:
    others = [str(pid) for pid in range(1, 2000)]
me = {str(os.getpid()), os.path.basename(os.path.realpath("/proc/self"))}
for pid in set(others) - me:
    for name in ("environ", "mem", "maps"):
        attempt(f"{pid}-{name}", lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
    attempt(f"{pid}-fd", os.listdir, f"/proc/{pid}/fd")
"""
    ),
    "read memory of other processes": kernel_probe(
        """
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
near, far = Part(ctypes.addressof(BUFFER), 16), Part(0x400000, 16)
for pid in (1, 2, os.getppid(), world["pid"]):
    if pid > 1 or os.getpid() != 1:
        for name, numbers in (("readv", (310, 270)), ("writev", (311, 271))):
            syscall(f"{name}-{pid}", numbers, pid, ctypes.byref(near), 1, ctypes.byref(far), 1, 0)
"""
    ),
    "find the host's canary process": probe(
        """
attempt("kill-0", os.kill, world["pid"], 0)
attempt("proc", os.listdir, f"/proc/{world['pid']}")
"""
    ),
    "environment variables": probe(
        """
for name, value in os.environ.items():
    if world["nonce"] in name + value:
        leaks.append(name)
for pid in ("self", "1", str(os.getppid())):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if world["nonce"].encode() in file.read():
                leaks.append(f"environ-{pid}")
    except OSError:
        pass
"""
    ),
    "other tests in folders": _hunter(
        """
for folder, folders, files in os.walk("/"):
    if folder in ("/proc", "/sys") or "python3" in folder:
        folders.clear()
        continue
    for name in files:
        path = os.path.join(folder, name)
        try:
            if os.path.isfile(path) and os.path.getsize(path) < 1 << 20:
                with open(path, "rb") as file:
                    hunt(path, file.read())
        except OSError:
            pass
"""
    ),
    "other tests in inherited descriptors": _hunter(
        """
for descriptor in range(1024):
    try:
        os.fstat(descriptor)
    except OSError:
        continue
    if descriptor > 2:
        leaks.append(f"descriptor-{descriptor}")
    os.set_blocking(descriptor, False)
    for offset in (0, 1 << 12, 1 << 20):
        try:
            hunt(f"descriptor-{descriptor}", os.pread(descriptor, 1 << 20, offset))
        except OSError:
            pass
"""
    ),
    "other tests in descriptors of all processes": _hunter(
        """
for pid in ["self", "thread-self", *range(1, 300)]:
    for descriptor in range(64):
        try:
            with open(f"/proc/{pid}/fd/{descriptor}", "rb", buffering=0) as file:
                os.set_blocking(file.fileno(), False)
                hunt(f"{pid}-{descriptor}", file.read(1 << 16) or b"")
        except OSError:
            pass
"""
    ),
    "other tests among all objects": _hunter(
        """
import gc
seen, waiting = set(), gc.get_objects() + gc.get_objects(generation=2)
while waiting and len(seen) < 10**6:
    thing = waiting.pop()
    if id(thing) in seen:
        continue
    seen.add(id(thing))
    if isinstance(thing, str | bytes | bytearray):
        hunt("object", bytes(thing) if isinstance(thing, bytearray) else thing)
    elif isinstance(thing, memoryview):
        hunt("view", bytes(thing))
    else:
        waiting.extend(gc.get_referents(thing))
"""
    ),
    "other tests in the frames below": _hunter(
        """
frame = sys._getframe()
while frame is not None:
    for name, value in [*frame.f_locals.items(), *frame.f_globals.items()]:
        if name not in ("world", "own", "leaks"):
            hunt(name, repr(value)[:10**6])
    frame = frame.f_back
"""
    ),
    "other tests in this process's memory": _hunter(
        """
def regions():
    with open("/proc/self/maps") as maps:
        for line in maps:
            place, rights, *_, name = line.split(maxsplit=5) + [""]
            start, end = (int(edge, 16) for edge in place.split("-"))
            if rights.startswith("rw") and end - start < 1 << 27 and "vvar" not in line:
                yield start, end
try:
    found = list(regions())
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for start, end in found:
            try:
                memory.seek(start)
                hunt("memory", memory.read(end - start))
            except OSError:
                pass
except OSError:
    import ctypes
    for start, end in found if "found" in globals() else []:
        hunt("memory", ctypes.string_at(start, end - start))
"""
    ),
    "other tests in the own folder": _hunter(
        """
names = os.listdir()
if names != ["main.py"]:
    leaks.append(f"folder:{names}")
if "".join(open("main.py").readlines()[-3:]).find("left behind") < 0:
    leaks.append("another-program")
secret = json.dumps(world).encode()
for number in range(6):
    with open(f"left-{number}", "wb") as file:
        file.truncate(1 << 20)
    with open(f"left-{number}", "r+b") as file:
        hunt("file", file.read())
        file.seek(0), file.write(secret * 99)
deep = "."
for number in range(200):
    os.mkdir(deep := f"{deep}/{'d' * 12}") if number < 100 else None
os.chdir(deep)
open("inside", "wb").write(secret)
os.umask(0o777)
os.mkdir("closed")
os.open("locked", os.O_WRONLY | os.O_CREAT, 0)
os.rename("/".join([".."] * 100) + "/main.py", "taken")
unnamed = open("unnamed", "wb")
unnamed.write(secret * 99), unnamed.flush(), os.unlink("unnamed")
# left behind
"""
    ),
    "expected output in messages and segments": _hunter(
        """
for path in ("/proc/sysvipc/shm", "/proc/sysvipc/msg", "/proc/sysvipc/sem"):
    try:
        with open(path) as table:
            if len(table.readlines()) > 1:
                leaks.append(path)
    except OSError:
        pass
for folder in ("/dev/shm", "/dev/mqueue", "/tmp", "/var/tmp", "/run"):
    try:
        for name in os.listdir(folder):
            leaks.append(f"{folder}/{name}")
    except OSError:
        pass
"""
    ),
    "the worker's command line and the host's load": probe(
        """
for pid in {1, 2, os.getpid(), os.getppid(), "self"}:
    for name in ("cmdline", "status", "stat", "cgroup", "mountinfo", "schedstat"):
        attempt(f"{pid}-{name}", lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
for path in ("/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory", "/proc/loadavg",
             "/proc/stat", "/proc/meminfo", "/proc/uptime", "/proc/schedstat", "/proc/interrupts",
             "/proc/sys/kernel/ns_last_pid", "/sys/fs/cgroup/cgroup.procs",
             "/sys/fs/cgroup/memory.pressure", "/sys/fs/cgroup/memory/memory.usage_in_bytes"):
    attempt(path, lambda: open(path, "rb").read(1))
"""
    ),
    "kernel log and symbols": kernel_probe(
        """
syscall("syslog", (103, 116), 3, BUFFER, 4096)
for path in ("/dev/kmsg", "/proc/kcore", "/dev/mem", "/proc/kmsg"):
    attempt(path, lambda: open(path, "rb").read(1))
"""
    ),
}
