"""A native program as a Python program: what it needs to run where no process may call exec.

The sandbox runs Python programs, and its filter refuses exec to all of them. A checker in C++ is no
exception: a Python program maps the executable into its own memory and jumps to it, as the kernel
would. So a checker has no right that a contestant's program lacks, on any backend.

The executable is linked statically and independently of its address, and finds its files in memory
(`FILES_SOURCE`).
"""

from __future__ import annotations

import base64
import zlib

# Arguments of a checker on testlib, in this order: the input, the program's output, the expected
# output.
FILES = ("input.txt", "output.txt", "answer.txt")

# Linked to a checker: its files are pieces of standard input, whose first line holds their sizes.
FILES_SOURCE = """\
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

static const char *const names[] = {NAMES};
static char *pieces[3];
static size_t sizes[3];

static void load() {
    size_t used = 0, room = 1 << 16;
    char *data = (char *) malloc(room);
    for (ssize_t count; (count = read(0, data + used, room - used)) > 0; used += count)
        if (used + count == room)
            data = (char *) realloc(data, room *= 2);
    char *end = data;
    for (int i = 0; i < 3; i++)
        sizes[i] = strtoull(end, &end, 10);
    pieces[0] = end + 1;
    pieces[1] = pieces[0] + sizes[0];
    pieces[2] = pieces[1] + sizes[1];
}

// Streams of C++ read by a descriptor, which files in memory lack: theirs begin at FIRST.
enum { OPEN = 16, FIRST = 1 << 20 };
static struct { FILE *file; int piece; size_t offset; } opened[OPEN];

extern "C" {

FILE *__real_fopen(const char *name, const char *mode);
int __real_fileno(FILE *file);
ssize_t __real_read(int descriptor, void *buffer, size_t size);
off_t __real_lseek64(int descriptor, off_t offset, int whence);

FILE *__wrap_fopen(const char *name, const char *mode) {
    int piece = 0, slot = 0;
    while (piece < 3 && strcmp(name, names[piece])) piece++;
    if (piece < 3 && !pieces[0])
        load();
    FILE *file = piece < 3 && sizes[piece] ? fmemopen(pieces[piece], sizes[piece], "r")
                                           : __real_fopen(piece < 3 ? "/dev/null" : name, mode);
    for (int i = 0; i < OPEN; i++)
        if (opened[i].file == file)
            opened[i].file = NULL;  // closed meanwhile
    while (slot < OPEN && opened[slot].file) slot++;
    if (piece < 3 && slot < OPEN) {
        opened[slot].file = file;
        opened[slot].piece = piece;
        opened[slot].offset = 0;
    }
    return file;
}

FILE *__wrap_fopen64(const char *name, const char *mode) { return __wrap_fopen(name, mode); }

int __wrap_fileno(FILE *file) {
    for (int i = 0; i < OPEN; i++)
        if (file && opened[i].file == file)
            return FIRST + i;
    return __real_fileno(file);
}

ssize_t __wrap_read(int descriptor, void *buffer, size_t size) {
    if (descriptor < FIRST)
        return __real_read(descriptor, buffer, size);
    int piece = opened[descriptor - FIRST].piece;
    size_t &offset = opened[descriptor - FIRST].offset;
    size_t left = offset < sizes[piece] ? sizes[piece] - offset : 0;
    size = size < left ? size : left;
    memcpy(buffer, pieces[piece] + offset, size);
    offset += size;
    return size;
}

off_t __wrap_lseek64(int descriptor, off_t offset, int whence) {
    if (descriptor < FIRST)
        return __real_lseek64(descriptor, offset, whence);
    size_t &now = opened[descriptor - FIRST].offset;
    off_t size = sizes[opened[descriptor - FIRST].piece];
    return now = offset + (whence == SEEK_SET ? 0 : whence == SEEK_CUR ? (off_t) now : size);
}

}
""".replace("NAMES", ", ".join(f'"{name}"' for name in FILES))
# The calls that are wrapped, for the linker.
WRAPPED = ("fopen", "fopen64", "fileno", "read", "lseek64")

# Exit status 3 is a checker's own failure, which is what a failure of this program is.
_LOADER = '''\
import base64, ctypes, mmap, os, struct, zlib

ARGUMENTS = {arguments!r}
libc = ctypes.CDLL(None)
PAGE = 1 << 16  # the largest page of any machine
STACK_BYTES = 128 << 20
JUMP = {{  # to the second argument, with the first as the stack
    "x86_64": b"\\x48\\x89\\xfc\\x31\\xd2\\x31\\xed\\xff\\xe6",
    "aarch64": b"\\x1f\\x00\\x00\\x91\\x00\\x00\\x80\\xd2\\x20\\x00\\x1f\\xd6",
}}
MACHINES = {{"x86_64": 62, "aarch64": 183}}
KERNEL_FACTS = (6, 11, 12, 13, 14, 16, 17, 23, 25, 26, 33, 51)  # AT_PAGESZ ... AT_MINSIGSTKSZ


def memory(size):
    """Return (address, mapping) of zeroed memory, aligned to PAGE."""
    mapping = mmap.mmap(-1, size + PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    return (start + PAGE - 1) // PAGE * PAGE, mapping


def protect(address, size, protection):
    """Protect whole pages of memory; after this, what was written there can be executed."""
    begin, end = address // mmap.PAGESIZE, -(-(address + size) // mmap.PAGESIZE)
    length = ctypes.c_size_t((end - begin) * mmap.PAGESIZE)
    if libc.mprotect(ctypes.c_void_p(begin * mmap.PAGESIZE), length, protection):
        raise OSError("mprotect")


def segments(image, start, size, count):
    """Yield (protection, offset, address, bytes in the file, bytes in memory) of what is loaded."""
    for number in range(count):
        kind, flags, offset, address, _, in_file, in_memory, _ = struct.unpack_from(
            "<IIQQQQQQ", image, start + number * size
        )
        if kind == 1:
            protection = bool(flags & 4) * mmap.PROT_READ | bool(flags & 2) * mmap.PROT_WRITE
            protection |= bool(flags & 1) * mmap.PROT_EXEC
            yield protection, offset, address, in_file, in_memory


def run(image):
    machine = os.uname().machine
    kind, for_machine = struct.unpack_from("<HH", image, 16)
    if image[:4] != b"\\x7fELF" or kind != 3 or for_machine != MACHINES.get(machine):
        raise ValueError(f"not a position-independent executable for {{machine}}")
    entry, headers = struct.unpack_from("<QQ", image, 24)
    header_size, count = struct.unpack_from("<HH", image, 54)
    loaded = list(segments(image, headers, header_size, count))
    base, _code = memory(max(address + size for *_, address, _, size in loaded))
    for protection, offset, address, size, in_memory in loaded:
        ctypes.memmove(base + address, image[offset : offset + size], size)
        protect(base + address, in_memory, protection)
    auxiliary = [3, base + headers, 4, header_size, 5, count, 7, 0, 9, base + entry]
    fact = libc.getauxval
    fact.restype, fact.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    for key in KERNEL_FACTS:
        if value := fact(key):
            auxiliary += [key, value]
    texts = [ctypes.create_string_buffer(text) for text in ARGUMENTS]
    addresses = map(ctypes.addressof, texts)
    words = [len(texts), *addresses, 0, 0, *auxiliary, 0, 0]
    stack, _stack = memory(STACK_BYTES)
    top = (stack + STACK_BYTES - 8 * len(words)) & ~0xF
    ctypes.memmove(top, struct.pack(f"<{{len(words)}}Q", *words), 8 * len(words))
    jump, _jump = memory(PAGE)
    ctypes.memmove(jump, JUMP[machine], len(JUMP[machine]))
    protect(jump, PAGE, mmap.PROT_READ | mmap.PROT_EXEC)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(jump)(top, base + entry)


try:
    run(zlib.decompress(base64.b64decode(IMAGE)))
except BaseException as error:
    os.write(2, f"the checker does not start: {{error!r}}".encode())
os._exit(3)
'''


def native_program(executable: bytes) -> str:
    """Return a Python program that becomes this executable, with FILES as its arguments."""
    image = base64.b64encode(zlib.compress(executable))
    arguments = [b"checker", *(name.encode() for name in FILES)]
    return f"IMAGE = {image!r}\n{_LOADER.format(arguments=arguments)}"
