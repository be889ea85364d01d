"""Checkers in Python and in C++ for the same problems, and a small stand-in for testlib.h.

The stand-in has the few names of testlib that these checkers use. It is written for these tests,
since the real header is no part of this project; `test_testlib.py` takes the real one where it is
installed.
"""

from dataclasses import dataclass

from envs.problem import CheckerProgram, Problem, Test

HEADER = r"""
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
"""


def python(body: str) -> CheckerProgram:
    """A checker with the words of the input, the expected output and the output at hand."""
    opening = (
        "import sys\ngiven, expected, output = (open(p).read().split() for p in sys.argv[1:])\n"
    )
    return CheckerProgram("python", opening + body)


def testlib(body: str) -> CheckerProgram:
    """The body of a checker's main function."""
    opening = "registerTestlibCmd(argc, argv);"
    return CheckerProgram(
        "testlib",
        '#include "testlib.h"\n#include <unistd.h>\n#include <vector>\n'
        f"int main(int argc, char **argv) {{ {opening}\n{body}\n}}\n",
    )


testlib.__test__ = False  # keeps pytest from collecting it


@dataclass(frozen=True)
class Case:
    """A problem, checkers for it in both languages, and outputs that one or none accepts."""

    python: CheckerProgram
    testlib: CheckerProgram
    right: str  # a program whose answers are others than the expected ones
    wrong: tuple[str, ...]  # programs

    def checker(self, language: str) -> CheckerProgram:
        return self.python if language == "python" else self.testlib


# Print two positive integers whose sum is n.
SPLIT = Case(
    python(
        "a, b = map(int, output)\nprint(int(a > 0 and b > 0 and a + b == int(given[0])), 'a word')"
        "\nprint(int(a > 0 and b > 0 and a + b == int(given[0])))"
    ),
    testlib(
        "int n = inf.readInt(); int a = ouf.readInt(1, n), b = ouf.readInt(1, n);"
        'if (!ouf.seekEof()) quitf(_pe, "more than two");'
        'if (a + b != n) quitf(_wa, "%d + %d is not %d", a, b, n);'
        'quitf(_ok, "ok");'
    ),
    "n = int(input())\nprint(n - 2, 2)",
    ("n = int(input())\nprint(n, 1)", "n = int(input())\nprint(n, 0)", "print('two')", "pass"),
)
SPLIT_TESTS = tuple(Test(f"{n}\n", f"1 {n - 1}\n") for n in (5, 9, 100, 12345))


def split_problem(program: CheckerProgram | None, **fields: object) -> Problem:
    """The problem of SPLIT with some checker program."""
    tests = fields.pop("tests", SPLIT_TESTS)
    fields = {"time_limit_s": 2.0, "checker": "program", "checker_program": program} | fields
    return Problem("test/split", "Print two numbers whose sum is n.", (), tests, **fields)


# Three rows of taco_special_judge: which one, its checkers, another right program and wrong ones.
# Row 40 asks for permutations without a fixed point.
DERANGEMENT = Case(
    python(
        """
sizes = list(map(int, given[1:]))
right = len(output) == sum(sizes)
for size in sizes:
    p, output = list(map(int, output[:size])), output[size:]
    right = right and sorted(p) == list(range(1, size + 1))
    right = right and all(value != i for i, value in enumerate(p, 1))
print(int(right))
"""
    ),
    testlib(
        """
int t = inf.readInt();
while (t--) {
    int n = inf.readInt();
    std::vector<bool> seen(n + 1);
    for (int i = 1; i <= n; i++) {
        int p = ouf.readInt(1, n);
        if (seen[p] || p == i) quitf(_wa, "%d at %d", p, i);
        seen[p] = true;
    }
}
if (!ouf.seekEof()) quitf(_pe, "too much");
quitf(_ok, "ok");
"""
    ),
    "for _ in range(int(input())):\n    n = int(input())\n    print(*range(2, n + 1), 1)",
    (
        "for _ in range(int(input())):\n    n = int(input())\n    print(*range(1, n + 1))",
        "for _ in range(int(input())):\n    n = int(input())\n    print(*[2] * n)",
        "for _ in range(int(input())):\n    n = int(input())\n    print(*range(2, n + 1), 1, 1)",
        "print('none')",
    ),
)
# Row 57 asks for one of the trees that fire reaches last.
LAST_TREE = Case(
    python(
        """
rows, columns, count, *fires = map(int, given)
fires = list(zip(fires[::2], fires[1::2]))
x, y = map(int, output)
reached = lambda x, y: min(abs(x - a) + abs(y - b) for a, b in fires)
last = max(reached(i, j) for i in range(1, rows + 1) for j in range(1, columns + 1))
print(int(1 <= x <= rows and 1 <= y <= columns and reached(x, y) == last))
"""
    ),
    testlib(
        """
int rows = inf.readInt(), columns = inf.readInt(), count = inf.readInt(), last = 0;
std::vector<int> a, b;
for (int i = 0; i < count; i++) a.push_back(inf.readInt()), b.push_back(inf.readInt());
auto reached = [&](int x, int y) {
    int least = 1 << 30;
    for (int i = 0; i < count; i++) least = std::min(least, abs(x - a[i]) + abs(y - b[i]));
    return least;
};
for (int i = 1; i <= rows; i++)
    for (int j = 1; j <= columns; j++) last = std::max(last, reached(i, j));
int x = ouf.readInt(1, rows), y = ouf.readInt(1, columns);
if (reached(x, y) != last) quitf(_wa, "%d minutes, not %d", reached(x, y), last);
quitf(_ok, "ok");
"""
    ),
    """
rows, columns = map(int, input().split())
input()
words = list(map(int, input().split()))
fires = list(zip(words[::2], words[1::2]))
trees = [(x, y) for x in range(1, rows + 1) for y in range(1, columns + 1)]
print(*max(reversed(trees), key=lambda t: min(abs(t[0] - a) + abs(t[1] - b) for a, b in fires)))
""",
    ("input()\ninput()\nprint(*input().split()[:2])", "print(0, 0)", "print(1)"),
)
# Row 6 asks for colours of pebbles, so that piles differ by at most one pebble of each colour.
PEBBLES = Case(
    python(
        """
n, k, *piles = map(int, given)
possible = max(piles) - min(piles) <= k
if not possible or output[:1] != ["YES"]:
    print(int(not possible and output == ["NO"]))
    raise SystemExit
colours = list(map(int, output[1:]))
right = len(colours) == sum(piles) and set(colours) <= set(range(1, k + 1))
counts = []
for size in piles:
    counts.append([colours[:size].count(c) for c in range(1, k + 1)])
    colours = colours[size:]
print(int(right and all(max(c) - min(c) <= 1 for c in zip(*counts))))
"""
    ),
    testlib(
        """
int n = inf.readInt(), k = inf.readInt(), least = 1 << 30, most = 0;
std::vector<int> piles;
for (int i = 0; i < n; i++) {
    piles.push_back(inf.readInt());
    least = std::min(least, piles[i]), most = std::max(most, piles[i]);
}
std::string word = ouf.readToken();
if (word != (most - least <= k ? "YES" : "NO")) quitf(_wa, "%s", word.c_str());
if (word == "NO") quitf(_ok, "ok");
std::vector<int> low(k + 1, 1 << 30), high(k + 1, 0);
for (int size : piles) {
    std::vector<int> found(k + 1, 0);
    while (size--) found[ouf.readInt(1, k)]++;
    for (int c = 1; c <= k; c++)
        low[c] = std::min(low[c], found[c]), high[c] = std::max(high[c], found[c]);
}
for (int c = 1; c <= k; c++)
    if (high[c] - low[c] > 1) quitf(_wa, "colour %d", c);
if (!ouf.seekEof()) quitf(_pe, "too much");
quitf(_ok, "ok");
"""
    ),
    """
n, k = map(int, input().split())
piles = list(map(int, input().split()))
print("NO" if max(piles) - min(piles) > k else "YES")
if max(piles) - min(piles) <= k:
    for size in piles:
        rest = size - min(piles)
        print(*[k] * min(piles), *range(k, k - rest, -1))
""",
    (
        "n, k = map(int, input().split())\nprint('YES')\n"
        "for size in map(int, input().split()):\n    print(*[1] * size)",
        "print('NO')",
        "print('YES')",
        "print('no')",
    ),
)
SPECIAL_ROWS = {40: DERANGEMENT, 57: LAST_TREE, 6: PEBBLES}
