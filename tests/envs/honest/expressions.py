"""One line of honest programs each: what contest programs take from the standard library."""

EXPRESSIONS = r"""
heapq heapq.nsmallest(3, [5, 1, 4, 2]), heapq.nlargest(2, "hello"), [*heapq.merge([1, 4], [2, 3])]
heapq (h := [3, 1, 2], heapq.heapify(h), heapq.heappushpop(h, 0), heapq.heapreplace(h, 9), h)
bisect bisect.bisect_left([1, 2, 2, 3], 2), bisect.bisect([1, 2, 2, 3], 2, 0, 3)
bisect bisect.bisect_left([(1, "a"), (3, "b")], 2, key=lambda p: p[0])
itertools [*itertools.accumulate([1, 2, 3], max)], [*itertools.accumulate([1, 2], initial=7)]
itertools [*itertools.combinations("abc", 2)], [*itertools.permutations([1, 2, 3], 2)][-1]
itertools [*itertools.product([0, 1], repeat=3)][5], [*itertools.pairwise([1, 4, 9])]
itertools [(k, len([*g])) for k, g in itertools.groupby("aabccc")]
itertools [*itertools.islice(itertools.cycle("ab"), 5)], [*itertools.chain.from_iterable([[1], [2]])]
itertools [*itertools.zip_longest([1], [2, 3], fillvalue=0)], [*itertools.starmap(pow, [(2, 3)])]
itertools [*itertools.compress("abc", [1, 0, 1])], [*itertools.dropwhile(lambda x: x < 2, [1, 2, 1])]
itertools [*itertools.combinations_with_replacement([1, 2], 2)], [*itertools.filterfalse(bool, [0, 1])]
itertools [next(c := itertools.count(5, 2)), next(c)], [[*t] for t in itertools.tee([1, 2])]
collections collections.Counter("abracadabra").most_common(2), collections.Counter(a=3) - collections.Counter(a=1)
collections (d := collections.deque([1, 2, 3], maxlen=3), d.rotate(1), d.append(4), d)
collections (d := collections.defaultdict(list), d[1].append(2), d)
collections (d := collections.OrderedDict(a=1, b=2), d.move_to_end("a"), d.popitem(last=False), d)
collections collections.ChainMap({1: 2}, {1: 3, 4: 5})[4], collections.namedtuple("P", "x y")(1, y=2)
functools functools.reduce(lambda a, b: a * b, range(1, 30)), functools.partial(int, base=2)("101")
functools sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))
math math.gcd(12, 18, 27), math.lcm(4, 6), math.isqrt(10**40), math.comb(50, 25), math.perm(5, 2)
math math.pi, math.hypot(3, 4), math.log2(1 << 60), math.log(10), math.exp(1), math.inf, math.nan
math math.dist((0, 0), (1, 1)), math.prod([1.5, 2]), math.fsum([.1] * 10), sum([.1] * 10)
math math.floor(-2.5), math.ceil(-2.5), math.trunc(-2.5), math.copysign(1, -0.0), math.fmod(-7, 3)
math math.frexp(10.0), math.ldexp(.5, 4), math.modf(3.25), math.nextafter(1, 2), math.ulp(1)
math math.gamma(5), math.erf(1), math.atan2(1, -1), math.degrees(1), math.cbrt(27), math.remainder(7, 4)
cmath cmath.sqrt(-1), cmath.polar(1j), (1 + 2j) ** 2, abs(3 + 4j), cmath.exp(1j * cmath.pi)
string string.ascii_lowercase, string.digits, string.punctuation, string.Template("$a").substitute(a=1)
re re.findall(r"\d+", "a1b22"), re.sub(r"(\w)(\w)", r"\2\1", "abcd"), re.split(r"[,;]", "a,b;c")
re re.fullmatch(r"(?P<x>a+)b*", "aab").groupdict(), re.match(r"\s*", "  x").span()
re re.sub("x", lambda m: str(m.start()), "axbx"), re.findall(r"(?<=a)b++", "abbab"), re.escape("a.b")
re re.compile(r"(a)|b", re.I).findall("AB"), re.search(r"(?s).+\Z", "a\nb").group(), re.I | re.M
random random.seed(1), random.random(), random.randint(1, 100), random.choice("abc")
random (r := random.Random(5), r.sample(range(99), 4), r.shuffle(a := [1, 2, 3, 4]), a, r.gauss(0, 1))[1:]
random random.seed("text"), random.choices([1, 2], [1, 9], k=5), random.getrandbits(70), random.uniform(1, 2)
decimal decimal.Decimal("0.1") + decimal.Decimal("0.2"), decimal.Decimal(2).sqrt(), decimal.Decimal("1E+3")
decimal (decimal.getcontext().__setattr__("prec", 50), decimal.Decimal(1) / 3)
decimal decimal.Decimal("2.675").quantize(decimal.Decimal("0.01"), decimal.ROUND_HALF_UP), decimal.Decimal("NaN")
decimal f"{decimal.Decimal('1234.5'):,.2f}", decimal.Decimal(0.1), decimal.Decimal(10) ** 30, -decimal.Decimal(0)
fractions fractions.Fraction(1, 3) + fractions.Fraction("1/6"), fractions.Fraction(.75), fractions.Fraction(7, 2) // 1
fractions fractions.Fraction(3.14159).limit_denominator(100), round(fractions.Fraction(5, 2)), [fractions.Fraction(2)]
statistics statistics.median([3, 1, 2]), statistics.pstdev([1, 2, 3, 4]), statistics.mode("aab"), statistics.mean([1, 2])
operator sorted([(2, 1), (1, 2)], key=operator.itemgetter(1)), operator.xor(5, 3), operator.mul("ab", 2)
operator operator.attrgetter("real")(5), operator.methodcaller("upper")("a"), operator.countOf([1, 1], 1)
array array.array("i", [1, 2, 3]), array.array("d", [1.5]).tobytes().hex(), array.array("b", b"ab").itemsize
array (a := array.array("q", range(5)), a.extend([9]), a.reverse(), a.tolist(), a[1:3])
struct struct.pack("<IhB", 1, -2, 3), struct.unpack(">d", bytes(8)), struct.calcsize("@bq"), struct.pack("3s", b"a")
copy (a := [[1]], b := copy.copy(a), c := copy.deepcopy(a), a[0].append(2), b, c)
json json.dumps({"a": [1, None, True, 1.5, "é"]}, sort_keys=True), json.loads('[1e3, -0, "\\u00e9"]')
json json.dumps([1, {"b": 2}], indent=1, ensure_ascii=False), json.dumps(float("inf")), json.loads("NaN")
datetime datetime.date(2024, 2, 29) + datetime.timedelta(366), datetime.date(2000, 1, 1).strftime("%a %d %b %Y %j")
datetime datetime.datetime(2020, 1, 1, 12) - datetime.datetime(2019, 1, 1), datetime.date.fromisoformat("2021-05-06")
datetime datetime.datetime.strptime("13:05", "%H:%M").time(), datetime.timedelta(seconds=-1), datetime.timezone.utc
calendar calendar.isleap(1900), calendar.monthrange(2023, 2), calendar.month(2024, 2), calendar.day_name[0]
time time.strftime("%Y", time.gmtime(0)), time.perf_counter() >= 0, time.monotonic_ns() > 0, time.mktime(time.gmtime(9))
textwrap textwrap.wrap("the quick brown fox", 9), textwrap.dedent("  a\n  b"), textwrap.shorten("a b c", 4, placeholder=".")
unicodedata unicodedata.normalize("NFD", "é"), unicodedata.name("é"), unicodedata.category("A"), unicodedata.numeric("½")
hashlib hashlib.sha256(b"x").hexdigest(), hashlib.md5(b"").digest()[:2], hashlib.blake2b(b"a", digest_size=4).hexdigest()
zlib zlib.crc32(b"hello"), zlib.adler32(b"a"), zlib.decompress(zlib.compress(b"ab" * 99)) == b"ab" * 99
base64 base64.b64encode(b"\x00\xff"), base64.b32decode("ME======"), base64.b85encode(b"abcd"), base64.b16encode(b"z")
binascii binascii.hexlify(b"ab"), binascii.unhexlify("6162"), binascii.crc_hqx(b"a", 0)
bz2 bz2.decompress(bz2.compress(b"x" * 999)) == b"x" * 999
lzma lzma.decompress(lzma.compress(b"x" * 999)) == b"x" * 999
gzip gzip.decompress(gzip.compress(b"x" * 999)) == b"x" * 999
secrets len(secrets.token_hex(8)), secrets.randbelow(1), secrets.compare_digest("a", "a")
uuid uuid.UUID(int=5), uuid.uuid5(uuid.NAMESPACE_DNS, "x"), len(str(uuid.uuid4()))
ast ast.literal_eval("[1, (2, {'a': None})]"), ast.unparse(ast.parse("x = 1+2")), ast.dump(ast.parse("1", mode="eval"))
pprint pprint.pformat({"b": [*range(40)], "a": 1}, width=40), pprint.pformat([[1] * 3] * 2)
enum enum.Enum("E", "A B").B, enum.IntFlag("F", "X Y")(3), [*enum.Enum("E", "A B")], enum.auto is not None
types types.SimpleNamespace(a=1), types.MappingProxyType({1: 2}), type(lambda: 0) is types.FunctionType
typing typing.get_type_hints(lambda: 0), typing.List[int], typing.Optional[int], typing.cast(int, "a")
inspect inspect.signature(lambda a, *b, c=1: 0), inspect.isgenerator(x for x in ""), inspect.getmro(bool)
inspect len(inspect.stack()), inspect.currentframe().f_back, (lambda: len(inspect.stack()))()
sys sys.getrecursionlimit(), sys.maxsize, sys.byteorder, sys.argv, sys.getsizeof(0), sys.version_info[:2]
sys sys._getframe().f_back, sys._getframe().f_code.co_name, sys.getdefaultencoding(), sys.flags.utf8_mode >= 0
sys sys.float_info.max, sys.int_info.bits_per_digit, sys.hash_info.modulus, sys.intern("a"), sys.implementation.name
os os.getenv("NO"), os.path.join("a", "b"), os.path.splitext("a.py"), os.sep, os.linesep, os.name, os.getpid() > 0
os os.nice(0) >= 0, os.cpu_count() > 0, len(os.urandom(3)), os.path.exists("/nowhere"), os.listdir("."), os.fspath("a")
os (os.sched_setaffinity(0, s := os.sched_getaffinity(0)), os.sched_getaffinity(0) == s, os.umask(18), os.get_blocking(0))
os os.path.basename(os.path.abspath("main.py")), os.isatty(1), os.strerror(2), os.getppid() >= 0, os.times().user >= 0
platform platform.python_implementation(), platform.system(), platform.python_version_tuple()[0]
weakref (lambda f: weakref.ref(f)() is f)(print), len(weakref.WeakValueDictionary()), weakref.getweakrefcount(print) >= 0
graphlib [*graphlib.TopologicalSorter({"a": ["b"], "b": ["c"]}).static_order()]
shlex shlex.split("a 'b c' d"), shlex.quote("a b")
difflib difflib.get_close_matches("appel", ["ape", "apple"]), difflib.SequenceMatcher(None, "ab", "abc").ratio()
csv [*csv.reader(["a,'b',\"c,d\""])], csv.Sniffer().sniff("a;b\nc;d").delimiter
io io.StringIO("a\nb").readlines(), io.BytesIO(b"abc").read(2), io.TextIOWrapper(io.BytesIO(b"a\r\nb")).read()
keyword keyword.iskeyword("for"), len(keyword.kwlist) > 30
locale locale.setlocale(locale.LC_ALL), locale.localeconv()["decimal_point"], locale.atof("1.5")
numbers isinstance(1, numbers.Integral), isinstance(1.5, numbers.Rational)
queue (q := queue.PriorityQueue(), q.put((2, "b")), q.put((1, "a")), q.get(), q.qsize())[1:]
queue (q := queue.LifoQueue(1), q.put(1), q.full(), q.get(), q.empty())[1:]
sched (s := sched.scheduler(), s.enter(0, 1, print, ("ran",)), s.run())[2]
string string.Formatter().format("{0:>5}|{a!r:^7}", 1, a="x"), string.capwords("ab cd")
codecs codecs.encode("abc", "rot13"), codecs.decode(b"\xe9", "latin-1"), codecs.lookup("utf8").name
textwrap textwrap.indent("a\nb", "> "), textwrap.fill("aaa bbb", 4)
dataclasses dataclasses.make_dataclass("P", ["x", ("y", int, 2)])(1), dataclasses.asdict(dataclasses.make_dataclass("Q", ["z"])(3))
contextlib contextlib.nullcontext(5).__enter__(), [c := contextlib.ExitStack(), c.callback(print, "cb"), c.close()][1:] and 1
tokenize [t.string for t in tokenize.generate_tokens(iter(["x=1\n"]).__next__)][:3]
dis dis.stack_effect(dis.opmap["POP_TOP"]), len([*dis.get_instructions("x")]) > 1
timeit timeit.timeit("1", number=9) >= 0
traceback traceback.format_exception_only(ValueError("x")), len(traceback.extract_stack())
gc gc.isenabled(), gc.get_threshold(), gc.collect() >= 0, gc.is_tracked([])
colorsys colorsys.rgb_to_hsv(1, 0, 0)
ipaddress ipaddress.ip_network("10.0.0.0/30").num_addresses, ipaddress.ip_address("::1").is_loopback
html html.escape("<a>"), html.unescape("&eacute;")
urllib.parse urllib.parse.quote("a b/é"), urllib.parse.parse_qs("a=1&a=2")
xml.etree.ElementTree xml.etree.ElementTree.fromstring("<a b='1'><c/></a>").attrib
sqlite3 sqlite3.connect(":memory:").execute("select 1 + 1, upper('a')").fetchall()
configparser configparser.ConfigParser().sections()
zoneinfo zoneinfo.ZoneInfo.__name__
builtins f"{3.14159:.2f} {255:#x} {1234567:,} {'a':*^5} {.5:.0%} {10:08b} {1e10:g} {-1:+d} {3!r:>4}"
builtins "%5.1f|%-5s|%05d|%x|%e|%s" % (2.25, "ab", 42, 255, 12345.678, None), "{:>{w}}".format(1, w=4)
builtins round(2.5), round(-1.5), round(2.675, 2), round(12345, -2), divmod(-7, 3), -7 // 2, -7 % 3, 7 % -3
builtins 2**100, pow(3, -1, 7), pow(2, 10**6, 97), int("-0b101", 0), int("z", 36), bin(-5), hex(255), oct(8)
builtins float("1e308") * 10, float("-inf"), 0.1 + 0.2, 1e22, 1e16, 123456789012345678.0, -0.0, 5e-324, 1 / 3
builtins (10**20).bit_length(), (255).to_bytes(2, "big"), int.from_bytes(b"\xff\xfe", "little", signed=True), (6).bit_count()
builtins sorted(["b", "A", "a"], key=str.lower, reverse=True), max([], default=3), min("b", "a"), sum([[1], [2]], [])
builtins [*zip("ab", [1, 2], strict=True)], [*map(max, [1, 5], [2, 3])], [*enumerate("ab", 1)], [*reversed("ab")], all([])
builtins "a,b,,c".split(","), " a  b ".split(), "abc".partition("b"), "aXbX".rsplit("X", 1), "a\nb\r\nc".splitlines()
builtins "ß".upper(), "İ".lower(), "ǅ".title(), "é" < "f", "ab".center(7, "*"), "7".zfill(3), "a\tb".expandtabs(4)
builtins "abc".translate({97: "x", 98: None}), "aab".count("a"), "x".join("abc"), "abc"[::-1], "ab" * 3, "abc".find("z")
builtins {1, 2} | {3} ^ {1}, {*"hello"} == set("ohell"), frozenset([1]), {1: 2} | {3: 4}, {}.get(1), dict(zip("ab", [1, 2]))
builtins [x for x in range(20) if not x % 3], {x: x * x for x in range(3)}, (lambda *a, **k: (a, k))(1, b=2), [[0] * 2] * 2
builtins hash("a") == hash("a"), hash(1.0) == hash(1), hash((1, 2)), hash(2**61 - 1), id(1) == id(1), hash(-1), hash("contest")
builtins [*{"banana", "apple", "cherry"}], [*{3, 1, 2, 100, 50}], repr({"b", "a"}), str({1.5, "x", None})
builtins ord("é"), chr(128512), ascii("é😀"), repr("a'b\n\x00"), "\N{BULLET}", len("👨‍👩‍👧"), "é".encode(), b"\xff".decode("latin-1")
builtins len(str(3**9000)), str(2**10000)[:20], int("9" * 4000) % 7, (10**4000 // 7) % 1000
builtins bytes([65, 66]), bytearray(b"ab") + b"c", memoryview(b"abc")[1], bytes.fromhex("6162"), b"a%db" % 5, b"ab".hex()
builtins isinstance(True, int), True + True, None is None, type(1).__name__, callable(print), bool([]), 1 < 2 < 3 > 2, not ()
builtins eval("1 + 1"), exec("x = 5") or x, compile("1", "a", "eval").co_filename, globals()["__name__"], __name__, __doc__
"""  # noqa: E501
