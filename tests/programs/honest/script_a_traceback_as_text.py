# name: script: a traceback as text
# input: "5\r\n7 8\r\nend\r\n"
# ---
import traceback
def f(): raise ValueError('x')
try: f()
except ValueError as e:
    t = e.__traceback__; n = 0
    while t: n += 1; t = t.tb_next
    print(n, [s.name for s in traceback.extract_tb(e.__traceback__)], traceback.format_exc().splitlines()[-1])
