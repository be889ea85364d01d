# name: script: multiprocessing's values
# input: "5\r\n7 8\r\nend\r\n"
# ---
import multiprocessing as mp
v, a, r = mp.Value('i', 3), mp.Array('d', [1, 2]), mp.RawArray('b', 5)
with v.get_lock(): v.value += 1
a[0] = 7.5
print(v.value, a[:], len(r), v, mp.current_process().name, mp.cpu_count() > 0)
