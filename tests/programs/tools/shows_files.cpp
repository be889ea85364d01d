
#include "testlib.h"
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        for (int c; (c = fgetc(file)) != EOF;) printf("%02x", c);
        puts("");
    }
    fprintf(stderr, "as a reason");
    return 5;
}
