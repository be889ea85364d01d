// A stand-in with the few names of testlib that the checkers of these tests use.

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

enum TResult { _ok = 0, _wa = 1, _pe = 2, _fail = 3, _points = 7 };

inline void quitf(TResult result, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    exit(result);
}

struct InStream {
    FILE *file;
    TResult malformed;
    std::string readToken() {
        int c = fgetc(file);
        while (c == ' ' || c == '\n' || c == '\r' || c == '\t') c = fgetc(file);
        std::string token;
        for (; c != EOF && !strchr(" \n\r\t", c); c = fgetc(file)) token += (char) c;
        if (token.empty()) quitf(malformed, "unexpected end of file");
        return token;
    }
    long long readLong(long long low, long long high) {
        std::string token = readToken();
        char *end;
        long long value = strtoll(token.c_str(), &end, 10);
        if (*end) quitf(malformed, "no number: %s", token.c_str());
        if (value < low || value > high)
            quitf(malformed == _pe ? _wa : malformed, "not in range: %s", token.c_str());
        return value;
    }
    int readInt(int low = -2147483647, int high = 2147483647) { return (int) readLong(low, high); }
    bool seekEof() {
        int c = fgetc(file);
        while (c == ' ' || c == '\n' || c == '\r' || c == '\t') c = fgetc(file);
        return c == EOF || (ungetc(c, file), false);
    }
};

static InStream inf, ouf, ans;

inline void registerTestlibCmd(int argc, char **argv) {
    if (argc < 4) quitf(_fail, "too few arguments");
    InStream *streams[] = {&inf, &ouf, &ans};
    for (int i = 0; i < 3; i++) {
        streams[i]->file = fopen(argv[i + 1], "rb");
        streams[i]->malformed = i == 1 ? _pe : _fail;
        if (!streams[i]->file) quitf(_fail, "cannot open %s", argv[i + 1]);
    }
}
