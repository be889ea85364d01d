#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

static const char *const names[] = {"input.txt", "output.txt", "answer.txt"};
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
