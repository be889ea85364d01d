# name: library: a recursive lock of C, held elsewhere
# input: ""
# output: "False\nTrue\n"
# ---
import ctypes, threading
libc, kind, lock = ctypes.CDLL(None), *map(ctypes.create_string_buffer, (64, 128))
libc.pthread_mutexattr_settype(kind, 1)
libc.pthread_mutex_init(lock, kind)
libc.pthread_mutex_lock(lock)
taken = lambda: print(libc.pthread_mutex_trylock(lock) == 0)
thread = threading.Thread(target=taken)
thread.start()
thread.join()
taken()
