# name: script: redirect_stdout and back
# input: "5\r\n7 8\r\nend\r\n"
# ---
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()) as f: print('in')
print(repr(f.getvalue()))
