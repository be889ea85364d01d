# name: streams: redirect_stdout
# input: ""
# output: "1\n1\n"
# ---
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()) as out: print(1)
print(out.getvalue() * 2, end='')
