# name: expression: 86 io
# input: ""
# ---
import io
print(io.StringIO("a\nb").readlines(), io.BytesIO(b"abc").read(2), io.TextIOWrapper(io.BytesIO(b"a\r\nb")).read())
