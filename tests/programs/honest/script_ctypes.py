# name: script: ctypes
# input: "5\r\n7 8\r\nend\r\n"
# ---
import ctypes
libc = ctypes.CDLL(None)
libc.strlen.restype = ctypes.c_size_t
class P(ctypes.Structure): _fields_ = [('x', ctypes.c_int), ('y', ctypes.c_double)]
a = (ctypes.c_int * 3)(3, 1, 2)
cmp = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
libc.qsort(a, 3, 4, cmp(lambda x, y: x[0] - y[0]))
print(libc.strlen(b'abc'), libc.abs(-5), ctypes.sizeof(P), [*a])
