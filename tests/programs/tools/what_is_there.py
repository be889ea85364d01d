
import gc, locale, os, platform, resource, signal, sys, numpy
print(f"python {platform.python_version()}, numpy {numpy.__version__}")
print(sys.executable, sys.flags, [type(finder) for finder in sys.meta_path])
print(sys.path[0] == os.getcwd(), sys.path[1:])  # the program's own folder, wherever it is
print(sorted(os.environ.items()), os.listdir(), sys.argv, sys.stdin, sys.stdout, sys.stderr)
print(sorted(sys.modules), gc.get_threshold())
print(locale.getpreferredencoding(), hash("x"), signal.getsignal(signal.SIGINT), os.umask(0))
for name in "AS", "STACK", "NOFILE", "FSIZE", "CPU", "CORE", "MEMLOCK":
    soft, hard = resource.getrlimit(getattr(resource, "RLIMIT_" + name))
    print(name, name == "AS" or soft, name == "AS" or hard)
for path in "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/null", "/dev/zero", "/dev/urandom":
    for mode in "rb", "ab":
        try:
            open(path, mode).close()
        except OSError as error:
            print(path, mode, error)
for name in "scipy", "pandas", "pip", "_pytest", "setuptools", "torch":
    try:
        __import__(name)
    except ImportError as error:
        print(type(error), error)
