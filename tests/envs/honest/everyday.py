"""Hundreds of honest programs, whose right output is what a plain python3 prints.

`EVERYDAY` maps a name to a program and its input. A third are single expressions, a fifth pairs of
a way to read and an input; the others stand in `_SCRIPTS`, each below a line `=== name`.
"""

from tests.envs.honest.expressions import EXPRESSIONS

_READERS = {
    "input": "n = int(input())\na = [int(x) for x in input().split()]",
    "input until EOF": "a = []\ntry:\n    while True: a += map(int, input().split())\n"
    "except EOFError: n = 0",
    "stdin.read": "import sys\nn, *a = map(int, sys.stdin.read().split())",
    "stdin.readline": "import sys\nr = sys.stdin.readline\nn = int(r())\n"
    "a = [*map(int, r().split())]",
    "stdin.buffer": "import sys\nn, *a = map(int, sys.stdin.buffer.read().split())",
    "for line in stdin": "import sys\nn, *a = [int(x) for line in sys.stdin for x in line.split()]",
    "readlines": "import sys\nb = sys.stdin.readlines()\nn = int(b[0])\n"
    "a = [*map(int, b[1].split())]",
    "open(0)": "n, *a = map(int, open(0).read().split())",
    "os.read": "import os\nn, *a = map(int, os.read(0, 1 << 16).split())",
    "fileinput": "import fileinput\nn, *a = [int(x) for l in fileinput.input() for x in l.split()]",
    "/dev/stdin": "n, *a = map(int, open('/dev/stdin').read().split())",
    "/proc/self/fd/0": "n, *a = map(int, open('/proc/self/fd/0').read().split())",
    "iter and sentinel": "import sys\nb = [*iter(sys.stdin.readline, '')]\n"
    "n, *a = map(int, ''.join(b).split())",
    "stdin.buffer.raw": "import sys\nn, *a = map(int, sys.stdin.buffer.raw.readall().split())",
    "mmap or read": "import mmap, os\ntry: t = mmap.mmap(0, 0, prot=mmap.PROT_READ)[:]\n"
    "except (OSError, ValueError): t = os.read(0, 9999)\nn, *a = map(int, t.split())",
    "io.open": "import io, sys\nf = io.open(sys.stdin.fileno(), 'rb', closefd=False)\n"
    "n, *a = map(int, f.read().split())",
}
_INPUTS = {
    "two lines": "3\n1 2 3\n",
    "no last newline": "3\n1 2 3",
    "blanks and blank lines": " 3 \n1  2\t3 \n\n\n",
    "CRLF": "3\r\n1 2 3\r\n",
}
_SHOW = "\nprint(n, sum(a), a)"

_SCRIPTS = r"""
=== CRLF lines split at blanks
import sys
n = sys.stdin.readline()
print(ascii(n), [ascii(x) for x in sys.stdin.readline().split(' ')], ascii(input()))
=== CRLF lines in binary
import sys
print(sys.stdin.buffer.readlines())
=== print flush, sep, end, file
import sys
print(1, 2, sep='-', end='!\n', flush=True)
print('x', file=sys.stderr)
print(*range(3), sep='\n')
print()
=== write, writelines, buffer
import sys
print(sys.stdout.write('ab\n'))
sys.stdout.flush()
sys.stdout.buffer.write(b'cd\n')
sys.stdout.writelines(['e', 'f\n'])
=== unordered buffers
import os, sys
print('third')
os.write(1, b'first\n')
sys.stdout.buffer.write(b'second\n')
sys.stdout.buffer.flush()
=== line by line
import sys
sys.stdout.reconfigure(line_buffering=True)
import os
print('a'); os.write(1, b'b\n'); print('c')
=== a million characters
print('x' * 10**6)
=== a hundred thousand prints
for i in range(20000): print(i, end=' ')
=== /dev/stdout after print
print(1)
open('/dev/stdout', 'w').write('2\n')
print(3)
=== /dev/stdout after flush
import sys
print(1, flush=True)
with open('/dev/stdout', 'w') as f: print(2, file=f)
print(3)
=== /dev/stdout as stdout
import sys
print(0)
sys.stdout.flush()
sys.stdout = open('/dev/stdout', 'w', buffering=1)
print(1)
=== /dev/stdout opened by os
import os
print(1, flush=True)
fd = os.open('/dev/stdout', os.O_WRONLY)
os.write(fd, b'2\n'); os.close(fd)
print(3)
=== /dev/stdout appended to
print(1, flush=True)
print(2, file=open('/dev/stdout', 'a'), flush=True)
print(3)
=== /dev/stdout through pathlib
import pathlib
print(1, flush=True)
pathlib.Path('/dev/stdout').write_text('2\n')
=== /dev/fd/1 and /proc/self/fd/1
for name in '/dev/fd/1', '/proc/self/fd/1':
    with open(name, 'w') as f: f.write(name + '\n')
print('end')
=== stdout duplicated
import os
print(1, flush=True)
os.write(os.dup(1), b'2\n')
with os.fdopen(os.dup(1), 'w') as f: f.write('3\n')
print(4)
=== stdout swapped by dup2
import os, sys
saved = os.dup(1)
r, w = os.pipe()
os.dup2(w, 1)
print('into the pipe', flush=True)
os.dup2(saved, 1)
print(os.read(r, 99))
=== redirect_stdout and back
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()) as f: print('in')
print(repr(f.getvalue()))
=== surrogates and bytes that are not UTF-8
import sys
sys.stdout.buffer.write(b'\xff\xfe\n')
print('\udcff')
=== other encodings
import io, sys
out = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-16-le', write_through=True)
out.write('é'); out.detach()
=== an encoding error
print('a', flush=True)
print('é'.encode('ascii'))
=== other scripts
print('你好', 'привет', 'مرحبا', 'नमस्ते', '🎉', sep='\n')
=== unicode identifiers
π, café = 3, 'x'
print(π, café, 'é' == 'e\u0301')
=== exit 0
import sys
print(1); sys.exit()
=== exit 3
import sys
print(1); sys.exit(3)
=== exit with a text
import sys
print(1); sys.exit('bad')
=== exit 256
import sys
print(1); sys.exit(256)
=== exit -1
exit(-1)
=== exit True
import sys
print(1); sys.exit(True)
=== raise SystemExit
print(1)
raise SystemExit
=== os._exit without a flush
import os
print(1); os._exit(0)
=== os._exit 5
import os
print(1, flush=True); os._exit(5)
=== os.abort
import os
print(1, flush=True); os.abort()
=== an uncaught exception
print(1)
[][1]
=== a chained exception
try: 1 / 0
except ZeroDivisionError as e: raise ValueError('x') from e
=== KeyboardInterrupt raised
print(1)
raise KeyboardInterrupt
=== GeneratorExit raised
print(1); raise GeneratorExit
=== an assertion
assert 1 + 1 == 3, 'no'
=== an exception group
print('in')
raise ExceptionGroup('g', [ValueError(1), TypeError(2)])
=== except star
try: raise ExceptionGroup('g', [ValueError(1), TypeError(2)])
except* ValueError as e: print(e.exceptions)
except* TypeError as e: print(e.exceptions)
=== too deep
def f(n): return f(n + 1)
f(0)
=== too deep, caught
def f(n):
    try: return f(n + 1)
    except RecursionError: return n > 900
print(f(0))
=== an exception in __del__
class A:
    def __del__(self): raise ValueError
A()
print(1)
=== an exception in a thread
import threading
t = threading.Thread(target=lambda: 1 / 0)
t.start(); t.join()
print('alive')
=== atexit in order
import atexit
atexit.register(print, 'last'); atexit.register(print, 'first')
print('main')
=== atexit after an error
import atexit
atexit.register(print, 'bye')
1 / 0
=== an excepthook
import sys
sys.excepthook = lambda t, v, b: print('hook', t.__name__)
1 / 0
=== stdout closed
import sys
print(1)
sys.stdout.close()
=== stdin closed
import sys
sys.stdin.close()
try: input()
except ValueError as e: print(e)
=== EOF
try: input()
except EOFError as e: print(e)
input()
=== a syntax error in exec
try: exec('a b')
except SyntaxError as e: print(e.msg, e.lineno)
=== a name error and its text
try: undefined
except NameError as e: print(e, e.name)
try: [].push
except AttributeError as e: print(e)
=== messages of errors
for f in (lambda: int('x'), lambda: {}[1], lambda: 'a' + 1, lambda: [1][5], lambda: None.x, lambda: 1 / 0, lambda: [].pop(), lambda: float('y'), lambda: max([])):
    try: f()
    except Exception as e: print(type(e).__name__, e)
=== finally and return
def f():
    try: return 1
    finally: print('finally')
print(f())
for i in range(3):
    try: continue
    finally: print(i)
=== signal to oneself
import os, signal
signal.signal(signal.SIGUSR1, lambda n, f: print('got', n, f is not None))
os.kill(os.getpid(), signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1)
print('after')
=== SIGINT to oneself
import os, signal
try: os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt: print('interrupted')
signal.raise_signal(signal.SIGINT)
=== SIGTERM to oneself
import os, signal
print(1, flush=True)
os.kill(os.getpid(), signal.SIGTERM)
print(2)
=== SIGKILL to oneself
import os, signal
print(1, flush=True)
signal.raise_signal(signal.SIGKILL)
=== signals ignored
import os, signal
for n in signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2:
    print(signal.signal(n, signal.SIG_IGN))
    os.kill(os.getpid(), n)
os.kill(os.getpid(), signal.SIGCHLD)
os.kill(os.getpid(), 0)
print('alive')
=== signals to a thread, blocked, awaited
import signal, threading
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
print(signal.sigpending())
print(signal.sigwait([signal.SIGUSR1]))
=== an alarm that interrupts a sleep
import signal, time
class Late(Exception): pass
def late(*a): raise Late
signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, .02)
try: time.sleep(5)
except Late: print('late')
=== names of signals
import signal
print(signal.Signals(9).name, signal.SIGINT, signal.strsignal(15), signal.getsignal(signal.SIGTERM))
print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGPIPE))
=== recursion in a thread with a large stack
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(1 << 27)
def f(n): return 0 if n == 0 else f(n - 1) + 1
def main(): print(f(30000))
t = threading.Thread(target=main); t.start(); t.join()
=== deep recursion of the main thread
import sys
sys.setrecursionlimit(200000)
def f(n): return n and f(n - 1) + 1
print(f(15000))
=== depth-first search of a path
import sys
sys.setrecursionlimit(1 << 20)
n = 5000
g = [[i + 1] for i in range(n)] + [[]]
size = [1] * (n + 1)
def dfs(v):
    for u in g[v]: dfs(u); size[v] += size[u]
dfs(0)
print(size[0])
=== a generator as a stack
from types import GeneratorType
def boot(f, stack=[]):
    def wrap(*args):
        if stack: return f(*args)
        to = f(*args)
        while True:
            if type(to) is GeneratorType: stack.append(to); to = next(to)
            else:
                stack.pop()
                if not stack: break
                to = stack[-1].send(to)
        return to
    return wrap
@boot
def f(n): yield 0 if n == 0 else (yield f(n - 1)) + 1
print(f(20000))
=== a hundred threads
import threading
lock, event, total = threading.Lock(), threading.Event(), [0]
def work(i):
    event.wait()
    with lock: total[0] += i
ts = [threading.Thread(target=work, args=(i,)) for i in range(100)]
for t in ts: t.start()
print(threading.active_count()); event.set()
for t in ts: t.join()
print(total)
=== a timer, a barrier, a condition, a semaphore
import threading
b = threading.Barrier(2)
t = threading.Timer(.01, b.wait); t.start(); b.wait(); t.join()
c = threading.Condition()
with c: print(c.wait_for(lambda: True), threading.BoundedSemaphore(2).acquire())
print(threading.current_thread().name, threading.main_thread() is threading.current_thread())
=== thread-local values and queues
import queue, threading
local, q = threading.local(), queue.Queue()
local.x = 1
t = threading.Thread(target=lambda: q.put(hasattr(local, 'x'))); t.start()
print(q.get(timeout=9), local.x)
=== a pool of futures
from concurrent.futures import ThreadPoolExecutor, as_completed
with ThreadPoolExecutor(8) as p:
    fs = [p.submit(pow, i, 2) for i in range(10)]
    print(sorted(f.result() for f in as_completed(fs)))
=== ThreadPool
from multiprocessing.pool import ThreadPool
with ThreadPool(4) as p: print(p.map(lambda x: x * x, range(9)), p.apply(max, (1, 2)))
print([*ThreadPool(2).imap(str, range(3))])
=== multiprocessing.dummy
from multiprocessing.dummy import Pool, Lock, Process
p = Process(target=print, args=('in',)); p.start(); p.join()
with Pool(3) as p: print(p.starmap(pow, [(2, 3), (3, 2)]))
=== multiprocessing's values
import multiprocessing as mp
v, a, r = mp.Value('i', 3), mp.Array('d', [1, 2]), mp.RawArray('b', 5)
with v.get_lock(): v.value += 1
a[0] = 7.5
print(v.value, a[:], len(r), v, mp.current_process().name, mp.cpu_count() > 0)
=== multiprocessing's locks
import multiprocessing as mp
l, r, s, e = mp.Lock(), mp.RLock(), mp.Semaphore(2), mp.Event()
with l: print(l, l.acquire(block=False), l.acquire(timeout=.01))
with r, r: print(r)
s.acquire(); print(s.get_value(), s)
e.set(); print(e.is_set(), e.wait(1))
try: l.release()
except ValueError as error: print(error)
try: r.release()
except AssertionError as error: print(error)
=== multiprocessing's queues and pipes
import multiprocessing as mp
q, s = mp.Queue(), mp.SimpleQueue()
q.put([1]); s.put('x')
print(q.get(timeout=9), s.get())
a, b = mp.Pipe()
a.send({'k': 1}); print(b.recv(), b.poll())
=== asyncio
import asyncio
async def f(i): await asyncio.sleep(.001 * (3 - i)); return i
async def main():
    print(await asyncio.gather(*map(f, range(3))))
    q = asyncio.Queue(); await q.put(1); print(await q.get())
    try: await asyncio.wait_for(asyncio.sleep(9), .01)
    except asyncio.TimeoutError: print('late')
asyncio.run(main())
=== the own text
print(len(open(__file__).read()), open(__file__).readline().strip())
=== the own name
import os, sys
print(os.path.basename(__file__), os.path.isabs(__file__), os.path.dirname(__file__) == os.getcwd())
print(os.listdir(), os.path.exists(sys.argv[0]), os.path.getsize('main.py'), open(sys.argv[0]).read(6))
=== a file of one's own
with open('out.txt', 'w') as f: print(1, 'é', file=f)
with open('out.txt', 'a') as f: f.write('more')
print(open('out.txt').read(), open('out.txt', 'rb').read())
import os
print(os.path.getsize('out.txt'), os.path.isfile('out.txt')); os.remove('out.txt'); print(os.path.exists('out.txt'))
=== a file changed in place
with open('a', 'wb+') as f:
    f.write(bytes(range(9))); f.seek(3); f.write(b'xyz'); f.seek(0); print(f.read(), f.tell())
    f.truncate(4); f.seek(0); print(f.read())
=== an input file that is not there
import os, sys
if os.path.exists('input.txt'): sys.stdin = open('input.txt')
try: open('input.txt')
except FileNotFoundError as e: print(e.errno, e.filename)
print('stdin')
=== input.txt to output.txt
import sys
open('input.txt', 'w').write('1 2\n')
sys.stdin, out = open('input.txt'), sys.stdout
sys.stdout = open('output.txt', 'w')
print(sum(map(int, input().split())))
sys.stdout.close(); sys.stdout = out
print(open('output.txt').read())
=== temporary files
import os, tempfile
with tempfile.TemporaryFile('w+') as f: f.write('hi'); f.seek(0); print(f.read())
with tempfile.NamedTemporaryFile() as f: f.write(b'x'); f.flush(); print(os.path.getsize(f.name))
print(os.path.exists(f.name), os.path.isdir(tempfile.gettempdir()))
s = tempfile.SpooledTemporaryFile(9); s.write(b'y' * 20); s.seek(0); print(s.read())
=== temporary folders
import os, tempfile
with tempfile.TemporaryDirectory() as d:
    open(os.path.join(d, 'a'), 'w').close(); os.makedirs(d + '/x/y'); print(sorted(os.listdir(d)))
print(os.path.exists(d))
=== a module of its own
with open('helper.py', 'w') as f: f.write('def double(x): return 2 * x')
import helper, bisect, sys; from helper import double
print(double(21), helper.__name__, sys.path[0] == __file__.rpartition('/')[0])
=== folders
import os, pathlib
os.mkdir('d'); os.rename('d', 'e'); pathlib.Path('e/f').write_text('hi'); pathlib.Path('e/g').touch()
print([(r, sorted(s), sorted(f)) for r, s, f in os.walk('.') if r != '.'])
os.replace('e/f', 'h'); os.unlink('e/g'); os.rmdir('e'); print(pathlib.Path('h').read_text(), os.path.isdir('e'))
os.chdir('/'); print(os.getcwd())
=== a hundred files
fs = [open(f'f{i}', 'w+') for i in range(100)]
for i, f in enumerate(fs): f.write(str(i)); f.seek(0)
print(sum(int(f.read()) for f in fs))
=== a hundred open devices
fs = [open('/dev/null') for _ in range(150)]
print(len(fs), fs[-1].read())
=== files that are packed
import gzip, zipfile
with gzip.open('a.gz', 'wt') as f: f.write('zipped')
print(gzip.open('a.gz', 'rt').read())
with zipfile.ZipFile('a.zip', 'w') as z: z.writestr('x', 'y' * 99)
print(zipfile.ZipFile('a.zip').read('x')[:3])
=== pickled and shelved
import pickle
pickle.dump({'a': (1, 2)}, open('p', 'wb'))
print(pickle.load(open('p', 'rb')), pickle.loads(pickle.dumps([1, {2}], 2)))
=== csv and json files
import csv, json
with open('t.csv', 'w', newline='') as f: csv.writer(f).writerows([[1, 'a,b'], [2, 'c"d']])
print(open('t.csv', newline='').read(), [*csv.DictReader(open('t.csv'), ['n', 's'])])
json.dump([1], open('j', 'w')); print(json.load(open('j')))
=== a log file
import logging
logging.basicConfig(filename='l.log', level=logging.INFO, format='%(levelname)s %(message)s')
logging.info('hi'); logging.debug('no')
print(open('l.log').read())
=== a mapped file
import mmap
open('m', 'wb').write(b'hello')
with open('m', 'r+b') as f, mmap.mmap(f.fileno(), 0) as m: m[0] = 74; print(m.find(b'l'), m[:])
print(open('m').read())
=== anonymous memory
import mmap
m = mmap.mmap(-1, 1 << 16)
m.write(b'abc'); m.seek(0); print(m.read(4), len(m), m.size())
=== a pipe to oneself
import os, select
r, w = os.pipe()
os.write(w, b'x' * 5); print(select.select([r], [], [], 0)[0] == [r], os.read(r, 9)); os.close(w); print(os.read(r, 9))
=== priority and affinity
import os
print(os.nice(3) - os.nice(0), os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}), len(os.sched_getaffinity(0)))
=== stat of the streams
import os, sys
print(os.fstat(0).st_size >= 0, sys.stdin.readable(), sys.stdout.writable(), sys.stderr.fileno(), sys.stdin.encoding)
=== resource limits
import resource
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0, len(resource.getrlimit(resource.RLIMIT_STACK)))
=== ctypes
import ctypes
libc = ctypes.CDLL(None)
libc.strlen.restype = ctypes.c_size_t
class P(ctypes.Structure): _fields_ = [('x', ctypes.c_int), ('y', ctypes.c_double)]
a = (ctypes.c_int * 3)(3, 1, 2)
cmp = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
libc.qsort(a, 3, 4, cmp(lambda x, y: x[0] - y[0]))
print(libc.strlen(b'abc'), libc.abs(-5), ctypes.sizeof(P), [*a])
=== big integers
a = 3**5000
print(a % 10**9, a.bit_length(), (a // 7**900) % 10**9, str(a)[:9], int(str(a)) == a, a >> 7900, isinstance(a, int))
f = 1
for i in range(1, 1000): f *= i
print(f)
=== primes, combinations modulo p, matrices
p = 10**9 + 7
fact = [1]
for i in range(1, 2000): fact.append(fact[-1] * i % p)
print(fact[-1] * pow(fact[7], p - 2, p) % p)
sieve = bytearray([1]) * 1000
for i in range(2, 32):
    if sieve[i]: sieve[i * i::i] = bytes(len(sieve[i * i::i]))
print(sum(sieve) - 2, [*zip(*[[1, 2], [3, 4]])])
=== decimal traps
from decimal import *
try: Decimal(1) / 0
except DivisionByZero as e: print(e)
with localcontext() as c: c.prec = 5; print(Decimal(22) / 7)
print(Decimal('1.10').normalize(), max(Decimal('NaN'), Decimal(1)), Decimal(5).sqrt(), getcontext().prec)
=== memoised recursion
from functools import cache, lru_cache, cached_property, singledispatch
@lru_cache(None)
def f(n): return n if n < 2 else f(n - 1) + f(n - 2)
print(f(300), f.cache_info())
class A:
    @cached_property
    def x(self): print('once'); return 5
a = A(); print(a.x + a.x)
@singledispatch
def g(x): return 'any'
@g.register
def _(x: int): return 'int'
print(g(1), g('a'))
=== dataclasses
from dataclasses import *
@dataclass(order=True, frozen=True, slots=True)
class P:
    x: int
    y: list = field(default_factory=list, compare=False)
print(P(1), P(1) < P(2), hash(P(3)) == hash((3,)), replace(P(1), x=5), astuple(P(1, [2])))
try: P(1).x = 2
except FrozenInstanceError as e: print(e)
=== classes
class A:
    n = 0
    def __init_subclass__(cls): A.n += 1
    def __getattr__(self, k): return k * 2
    def __call__(self, *a): return a
    def __enter__(self): return self
    def __exit__(self, *a): return True
    def __iter__(self): yield from (1, 2)
    def __len__(self): return 0
    def __contains__(self, x): return True
    def __class_getitem__(cls, k): return k
class B(A): pass
with A() as a: 1 / 0
print(A.n, a.xy, a(1), [*a], bool(a), 5 in a, A[int], B.__mro__[1].__name__)
=== abstract classes, properties, metaclasses
import abc
class M(type):
    def __repr__(cls): return 'M!'
class A(metaclass=M):
    @property
    def x(self): return self._x
    @x.setter
    def x(self, v): self._x = v + 1
    @classmethod
    def c(cls): return cls
    @staticmethod
    def s(): return 's'
a = A(); a.x = 1; print(a.x, A.c(), A.s())
class B(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
try: B()
except TypeError as e: print(e)
=== generators
def g():
    x = yield 1
    print('got', x)
    try: yield 2
    except ValueError: yield 3
    return 4
i = g(); print(next(i), i.send('a'), i.throw(ValueError))
try: next(i)
except StopIteration as e: print(e.value)
def h(): r = yield from (x for x in 'ab'); print(r)
print([*h()])
=== pattern matching
def f(x):
    match x:
        case 0 | 1: return 'small'
        case [a, *rest] if rest: return a, rest
        case {'k': v, **o}: return v, o
        case str(s): return s
        case _: return None
print(f(1), f([1, 2]), f({'k': 1, 'z': 2}), f('s'), f([]))
=== walrus, starred, unpacking, lambdas, scopes
a, *b, c = range(5); (d, e), f = [1, 2], 3
if (n := len(b)) > 2: print(n, {**{1: 2}, 3: 4}, [*b, *'xy'])
x = 1
def outer():
    x = 2
    def inner():
        nonlocal x
        x += 1
        return x
    return inner() + globals()['x']
print(outer(), [f() for f in [lambda i=i: i for i in range(3)]], (lambda: (yield))().__name__)
=== decorators and closures
import functools, time
def timed(f):
    @functools.wraps(f)
    def g(*a, **k): time.perf_counter(); return f(*a, **k)
    return g
@timed
def add(a, b=1): 'doc'; return a + b
print(add(1), add.__name__, add.__doc__, add.__wrapped__(2))
=== disjoint sets, segment tree, trie
class DSU:
    def __init__(self, n): self.p = list(range(n))
    def find(self, x):
        while self.p[x] != x: self.p[x] = x = self.p[self.p[x]]
        return x
    def union(self, a, b): self.p[self.find(a)] = self.find(b)
d = DSU(9); d.union(1, 2); d.union(2, 3); print(d.find(1) == d.find(3))
t = [0] * 16
def add(i, v):
    i += 8
    while i: t[i] += v; i >>= 1
for i in range(8): add(i, i)
print(t[1], t[2])
trie = {}
for w in 'to', 'tea': functools_reduce = __import__('functools').reduce(lambda n, c: n.setdefault(c, {}), w, trie)
print(trie)
=== Dijkstra, breadth first, topological order
import heapq
from collections import deque, defaultdict
g = defaultdict(list)
for a, b, w in [(0, 1, 4), (0, 2, 1), (2, 1, 2), (1, 3, 5)]: g[a].append((b, w))
d, h = {0: 0}, [(0, 0)]
while h:
    c, v = heapq.heappop(h)
    for u, w in g[v]:
        if c + w < d.get(u, 1e9): d[u] = c + w; heapq.heappush(h, (c + w, u))
print(d)
q, seen = deque([0]), {0}
while q:
    for u, _ in g[q.popleft()]:
        if u not in seen: seen.add(u); q.append(u)
print(seen)
=== dates and times
import datetime, time
print(time.time() > 1e9, time.localtime().tm_year > 2020, time.tzname[0], datetime.datetime.now().year > 2020)
time.sleep(.001); print(time.process_time() >= 0, time.thread_time() >= 0)
=== interactive queries
n = 7
lo, hi = 1, 8
while lo < hi:
    m = (lo + hi) // 2
    print('?', m, flush=True)
    lo, hi = (m + 1, hi) if m < n else (lo, m)
print('!', lo)
=== prompts
print(int(input('a? ')) + int(input('b? ').strip() or 0))
=== eval of input
a = eval(input()); exec('b = a + 1'); print(b)
=== sys.stdin replaced
import io, sys
sys.stdin = io.StringIO('5\n6')
print(int(input()) + int(input()))
=== argv and environment
import os, sys
print(sys.argv[1:], os.environ.get('ONLINE_JUDGE'), 'HOME' in os.environ or 1, len(sys.path) > 0)
=== imports that fail
for name in 'nosuchmodule', 'sortedcontainerz':
    try: __import__(name)
    except ImportError as e: print(type(e).__name__, e)
=== warnings
import warnings
warnings.simplefilter('error')
try: warnings.warn('w', DeprecationWarning)
except DeprecationWarning as e: print(e)
=== tracing
import sys
calls = []
sys.setprofile(lambda f, e, a: calls.append(e))
len('a')
sys.setprofile(None)
print('c_call' in calls, sys._getframe().f_lineno, sys.exc_info())
=== frames
import sys, traceback
def f(): return sys._getframe(1).f_code.co_name, sys._getframe().f_back.f_back
print(f(), len(traceback.format_stack()), sys._getframe().f_globals is globals())
try: sys._getframe(1)
except ValueError as e: print(e)
=== a traceback as text
import traceback
def f(): raise ValueError('x')
try: f()
except ValueError as e:
    t = e.__traceback__; n = 0
    while t: n += 1; t = t.tb_next
    print(n, [s.name for s in traceback.extract_tb(e.__traceback__)], traceback.format_exc().splitlines()[-1])
=== numpy arrays
import numpy as np
a = np.arange(12).reshape(3, 4)
print(a.T @ a, a.sum(axis=0), a[a > 5], np.cumsum(a[0]), a.dtype, np.array([1, 2.5]))
print(np.linalg.det(np.eye(2)), np.sort([3, 1]), np.unique([1, 1, 2], return_counts=True), np.gcd.reduce([4, 6]))
=== numpy files and random numbers
import numpy as np
np.save('a.npy', np.ones(3)); print(np.load('a.npy'))
np.savetxt('t', [[1, 2]], fmt='%d'); print(open('t').read(), np.random.default_rng(1).integers(0, 9, 5))
=== numpy from input
import sys, numpy as np
print(np.fromstring(sys.stdin.read(), dtype=np.int64, sep=' ').sum())
=== numpy errors
import numpy as np
print(np.array([1]) / 0, np.int64(2**62) * 2)
np.zeros(3)[5]
"""  # noqa: E501
_SCRIPT_INPUT = "5\r\n7 8\r\nend\r\n"


def _scripts() -> dict[str, tuple[str, str]]:
    blocks = (block.partition("\n") for block in _SCRIPTS.split("\n=== ")[1:])
    return {name: (program, _SCRIPT_INPUT) for name, _, program in blocks}


def _expressions() -> dict[str, tuple[str, str]]:
    programs = {}
    for number, line in enumerate(EXPRESSIONS.strip().splitlines()):
        module, _, expression = line.partition(" ")
        programs[f"{number} {module}"] = f"import {module}\nprint({expression})", ""
    return programs


def _read() -> dict[str, tuple[str, str]]:
    return {
        f"{how}: {what}": (reader + _SHOW, text)
        for how, reader in _READERS.items()
        for what, text in _INPUTS.items()
    }


EVERYDAY: dict[str, tuple[str, str]] = {
    f"{group}: {name}": program
    for group, programs in {
        "expression": _expressions(),
        "reading": _read(),
        "script": _scripts(),
    }.items()
    for name, program in programs.items()
}
