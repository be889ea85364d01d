"""Attacks on the confinement: files, rights, namespaces, and dangerous system calls."""

from tests.envs.attacks.base import ends, kernel_probe, probe

ATTACKS = {
    "write outside": probe(
        """
folders = ["/", "/etc", "/usr", "/usr/bin", "/root", "/home", "/var", "/sys", "/proc", "/bin",
           sys.prefix, os.path.dirname(os.__file__), os.path.dirname(world["file"])]
for folder in folders:
    name = os.path.join(folder, "owned-" + world["nonce"])
    attempt(folder, lambda: open(name, "w"))
    attempt(f"mkdir-{folder}", os.mkdir, name)
attempt("canary", lambda: open(world["file"], "a"))
attempt("remove", os.remove, world["file"])
"""
    ),
    "change the standard library": probe(
        """
for path in (os.__file__, json.__file__, sys.executable):
    attempt(path, lambda: open(path, "r+b"))
    attempt("remove-" + path, os.remove, path)
    attempt("rename-" + path, os.rename, path, path + ".old")
    attempt("truncate-" + path, os.truncate, path, 0)
attempt("exe", lambda: open("/proc/self/exe", "r+b"))
attempt("exe-of-1", lambda: open("/proc/1/exe", "r+b"))
"""
    ),
    "change modes, owners and times": probe(
        """
for path in ("/", "/etc", os.__file__, sys.executable, world["file"]):
    attempt("chmod-" + path, os.chmod, path, 0o777)
    attempt("chown-" + path, os.chown, path, os.getuid(), os.getgid())
    attempt("utime-" + path, os.utime, path, (0, 0))
    attempt("xattr-" + path, lambda: os.setxattr(path, "user.owned", b"1"))
"""
    ),
    "symbolic and hard links": probe(
        """
for folder in ("/tmp", "/dev/shm", "/var/tmp", "/dev", "/run", "/", os.getcwd()):
    name = os.path.join(folder, "link-" + world["nonce"])
    for source in (world["file"], "/proc/1/root" + world["file"], sys.executable):
        attempt(f"hard-{folder}", os.link, source, name)
        try:
            os.symlink(source, name)
        except OSError:
            continue
        mode = "r+b" if source == sys.executable else "rb"
        attempt(f"through-{folder}", open, name, mode)
        os.remove(name)
"""
    ),
    "mount": kernel_probe(
        """
syscall("mount", (165, 40), b"none", b"/", b"tmpfs", 0, 0)
syscall("remount", (165, 40), b"none", b"/", 0, 32 | 4096, 0)
syscall("umount", (166, 39), b"/proc", 2)
syscall("open_tree", (428, 428), -100, b"/", 1)
syscall("fsopen", (430, 430), b"tmpfs", 0)
syscall("move_mount", (429, 429), -100, b"/", -100, b"/", 0)
syscall("mount_setattr", (442, 442), -100, b"/", 0, 0, 0)
"""
    ),
    "chroot and pivot_root": kernel_probe(
        """
attempt("chroot", os.chroot, "/")
attempt("chroot-proc", os.chroot, "/proc/self/fd")
syscall("pivot_root", (155, 41), b".", b".")
"""
    ),
    "become another user": kernel_probe(
        """
if os.getuid() != 0:
    attempt("setuid", os.setuid, 0)
    attempt("setresuid", os.setresuid, 0, 0, 0)
    attempt("setgid", os.setgid, 0)
attempt("setgroups", os.setgroups, [0, 27])
header = (ctypes.c_uint * 2)(0x20080522, 0)
syscall("capset", (126, 91), header, (ctypes.c_uint * 6)(*[0xFFFFFFFF] * 6))
try:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(("CapEff", "CapPrm", "CapInh", "CapAmb")) and int(line[7:], 16):
                leaks.append(line.split(":")[0])
            if line.startswith("NoNewPrivs") and line.split()[1] != "1":
                leaks.append("NoNewPrivs")
except OSError:
    pass
"""
    ),
    "ptrace": kernel_probe(
        """
syscall("traceme", (101, 117), 0, 0, 0, 0)
for pid in (1, os.getppid(), world["pid"]):
    if pid > 1 or os.getpid() != 1:
        syscall(f"attach-{pid}", (101, 117), 16, pid, 0, 0)
        syscall(f"seize-{pid}", (101, 117), 0x4206, pid, 0, 0)
"""
    ),
    "kill everything": ends(
        """
for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGKILL):
    try:
        os.kill(-1, number)
    except OSError:
        pass
print("HELD")
""",
        "ACCEPTED",
    ),
    "signal the process group": ends(
        """
for number in (signal.SIGCONT, signal.SIGUSR1, signal.SIGSTOP, signal.SIGKILL):
    for action in (os.kill, os.killpg):
        try:
            action(0, number)
        except OSError:
            pass
print("HELD")
""",
        "ACCEPTED",
        "RUNTIME_ERROR",  # killed itself
        "TIME_LIMIT",  # stopped itself
    ),
    "stop and interrupt the parent": probe(
        """
for pid in {1, 2, 3, os.getppid(), world["pid"]} - {0, os.getpid()}:
    for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGKILL):
        try:
            os.kill(pid, number)
            leaks.append(f"{number}-to-{pid}")
        except OSError:
            pass
"""
    ),
    "stop oneself": kernel_probe(
        """
me = os.getpid()
for number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
    attempt(f"kill-{number}", os.kill, me, number)
    attempt(f"raise-{number}", signal.raise_signal, number)
    syscall(f"tgkill-{number}", (234, 131), me, me, number)
"""
    ),
    "killed by oneself after the answer": ends(
        """
print("HELD", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""",
        "RUNTIME_ERROR",
    ),
    "signals to others by the calls that reach oneself": kernel_probe(
        """
me = os.getpid()
for pid in {0, -1, -me, 1, 2, 3, os.getppid(), world["pid"], me + 1, me - 1} - {me}:
    for number in (0, 9, 10, 18):
        syscall(f"kill-{pid}-{number}", (62, 129), pid, number)
        syscall(f"tgkill-{pid}-{number}", (234, 131), pid, pid, number)
for pid in (me, world["pid"]):
    syscall(f"tkill-{pid}", (200, 130), pid, 0)
    syscall(f"queue-{pid}", (129, 138), pid, 0, BUFFER)
    syscall(f"thread-queue-{pid}", (297, 240), pid, pid, 0, BUFFER)
    syscall(f"pidfd-{pid}", (434, 434), pid, 0)
"""
    ),
    "change files beside the own folder": probe(
        """
open  # a program that has a folder
own = os.path.join(os.getcwd(), "own-" + world["nonce"])
os.mkdir(own)
library = os.path.dirname(os.__file__)
folders = ["/", "/dev", "/etc", "/stdio", "/proc", "/tmp", "/var/tmp", "/dev/shm", library,
           os.path.dirname(world["file"]), os.path.dirname(os.getcwd())]
for folder in folders:
    name = os.path.join(folder, "left-" + world["nonce"])
    attempt(f"mkdir-{folder}", os.mkdir, name)
    attempt(f"move-{folder}", os.rename, own, name)
    attempt(f"make-{folder}", os.open, name, os.O_WRONLY | os.O_CREAT)
    attempt(f"remove-{folder}", os.rmdir, folder)
files = [os.__file__, world["file"], "/dev/stdin", "/dev/null", "/stdio/stdout", sys.executable]
for name in files:
    attempt(f"take-{name}", os.rename, name, own + "/taken")
    attempt(f"unlink-{name}", os.unlink, name)
    attempt(f"replace-{name}", os.replace, own, name)
    attempt(f"link-{name}", os.link, name, own + "/link")
    attempt(f"symlink-{name}", os.symlink, name, own + "/symlink")
for kind in (0o10600, 0o20600, 0o60600):
    attempt(f"node-{kind}", os.mknod, own + "/node", kind, os.makedev(1, 3))
attempt("mode", os.chmod, own, 0o777)
""",
        tests=2,
    ),
    "limit the worker": kernel_probe(
        """
zero = (ctypes.c_ulong * 2)(0, 0)
for pid in {1, 2, 3, os.getppid(), world["pid"]} - {0, os.getpid()}:
    for resource in (0, 1, 7, 9):
        syscall(f"prlimit-{resource}-of-{pid}", (302, 261), pid, resource, zero, 0)
    attempt(f"nice-{pid}", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt(f"affinity-{pid}", lambda: os.sched_setaffinity(pid, {0}))
"""
    ),
    "new namespaces": kernel_probe(
        """
for name, flag in (("user", 0x10000000), ("mount", 0x20000), ("pid", 0x20000000),
                   ("net", 0x40000000), ("ipc", 0x8000000), ("time", 0x80)):
    syscall(f"unshare-{name}", (272, 97), flag)
    child = syscall(f"clone-{name}", (56, 220), flag | 17, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
for name in ("user", "mnt", "pid", "net"):
    for pid in ("1", "self"):
        try:
            descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        except OSError:
            continue
        syscall(f"setns-{name}-of-{pid}", (308, 268), descriptor, 0)
"""
    ),
    "clone3": kernel_probe(
        """
arguments = (ctypes.c_ulong * 11)(0x10000000, *[0] * 10)
child = syscall("clone3", (435, 435), arguments, 88)
if child == 0:
    os._exit(0)
"""
    ),
    "io_uring": kernel_probe(
        """
syscall("io_uring_setup", (425, 425), 8, BUFFER)
syscall("io_uring_register", (427, 427), 0, 0, 0, 0)
"""
    ),
    "bpf and performance counters": kernel_probe(
        """
syscall("bpf", (321, 280), 0, BUFFER, 120)
syscall("perf_event_open", (298, 241), BUFFER, 0, -1, -1, 0)
syscall("userfaultfd", (323, 282), 0)
syscall("fanotify_init", (300, 262), 0, 0)
"""
    ),
    "kernel keys": kernel_probe(
        """
syscall("add_key", (248, 217), b"user", b"owned", b"x", 1, -3)
syscall("request_key", (249, 218), b"user", b"owned", 0, 0)
syscall("keyctl", (250, 219), 0, -3, 1)
"""
    ),
    "System V and POSIX message queues": kernel_probe(
        """
syscall("shmget", (29, 194), 0x5350, 1 << 20, 0o1666)
syscall("semget", (64, 190), 0x5350, 1, 0o1666)
syscall("msgget", (68, 186), 0x5350, 0o1666)
syscall("mq_open", (240, 180), b"owned", 0o102, 0o666, 0)
""",
        tests=2,
    ),
    "sysrq and kernel settings": probe(
        """
for path in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/sysrq",
             "/proc/sys/vm/drop_caches", "/proc/sys/kernel/hostname", "/proc/1/oom_score_adj",
             "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/fs/cgroup/cgroup.procs",
             "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"):
    attempt(path, lambda: open(path, "r+b"))
"""
    ),
    "kernel modules, reboot, clock": kernel_probe(
        """
syscall("init_module", (175, 105), BUFFER, 0, b"")
syscall("finit_module", (313, 273), 0, b"", 0)
syscall("delete_module", (176, 106), b"owned", 0)
syscall("kexec_load", (246, 104), 0, 0, 0, 0)
syscall("reboot", (169, 142), 0xFEE1DEAD, 672274793, 0, 0)
syscall("swapon", (167, 224), b"/owned", 0)
syscall("acct", (163, 89), b"/owned")
import time
now = time.clock_gettime_ns(time.CLOCK_REALTIME)
syscall("clock_settime", (227, 112), 0, (ctypes.c_long * 2)(*divmod(now, 10**9)))
syscall("settimeofday", (164, 170), (ctypes.c_long * 2)(now // 10**9, 0), 0)
syscall("iopl", (172, None), 3)
"""
    ),
    "devices": kernel_probe(
        """
for folder in ("/tmp", "/dev/shm", "/dev", "/", os.getcwd()):
    path = os.path.join(folder, "disk-" + world["nonce"])
    attempt(f"mknod-{folder}", os.mknod, path, 0o60666, os.makedev(8, 0))
for path in ("/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/loop0", "/dev/kvm", "/dev/fuse",
             "/dev/net/tun", "/dev/tty", "/dev/console"):
    attempt(path, lambda: open(path, "r+b", buffering=0))
"""
    ),
    "terminals": probe(
        """
for path in ("/dev/ptmx", "/dev/pts/ptmx", "/dev/tty", "/dev/console", "/dev/pts/0"):
    attempt(path, os.open, path, os.O_RDWR | os.O_NOCTTY)
attempt("openpty", os.openpty)
"""
    ),
    "files beside the standard streams": probe(
        """
for folder in ("/stdio", "/dev", "/dev/fd", "/"):
    for number in range(3):
        name = f"{folder}/left-{number}"
        attempt(name, os.open, name, os.O_WRONLY | os.O_CREAT, 0o666)
for name in ("/stdio/stdin", "/dev/stdin", "/dev/fd/1"):
    attempt(f"remove-{name}", os.remove, name)
    attempt(f"rename-{name}", os.rename, name, name + "-left")
    attempt(f"mode-{name}", os.chmod, name, 0o600)
    attempt(f"times-{name}", os.utime, name, (0, 0))
    attempt(f"attribute-{name}", lambda: os.setxattr(name, "user.left", b"1"))
""",
        tests=2,
    ),
    "file handles": kernel_probe(
        """
handle = (ctypes.c_uint * 34)(8, 1, 2)
syscall("open_by_handle_at", (304, 265), 0, handle, 0)
syscall("pidfd_getfd", (438, 438), 0, 0, 0)
syscall("kcmp", (312, 272), 1, os.getpid(), 0, 0, 0)
"""
    ),
    "type into the terminal": probe(
        """
import fcntl
for descriptor in (0, 1, 2):
    attempt(f"TIOCSTI-{descriptor}", fcntl.ioctl, descriptor, 0x5412, b"x")
"""
    ),
    "set-user-id programs": probe(
        """
for path in ("/bin/su", "/usr/bin/su", "/usr/bin/sudo", "/usr/bin/passwd", "/bin/mount"):
    if os.path.exists(path):
        leaks.append(path)
"""
    ),
    "daemon that outlives its test": ends(
        """
import ctypes, time
try:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, world["nonce"][:15].encode(), 0, 0, 0)
            os.closerange(0, 64)
            time.sleep(120)
        os._exit(0)
except OSError:
    pass
print("HELD")
""",
        "ACCEPTED",
        tests=2,
    ),
    "daemon without a parent to die with": ends(
        """
import ctypes, time
libc = ctypes.CDLL(None)
try:
    for _ in range(3):
        if os.fork():
            break
        libc.prctl(1, 0, 0, 0, 0)
        libc.prctl(36, 1, 0, 0, 0)
        libc.prctl(15, world["nonce"][:15].encode(), 0, 0, 0)
        for number in range(1, 32):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
    else:
        time.sleep(120)
except OSError:
    pass
print("HELD")
os._exit(0) if os.getpid() == 1 else None
""",
        "ACCEPTED",
        "WRONG_ANSWER",  # several processes answered
    ),
}
