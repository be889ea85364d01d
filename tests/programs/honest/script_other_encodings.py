# name: script: other encodings
# input: "5\r\n7 8\r\nend\r\n"
# ---
import io, sys
out = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-16-le', write_through=True)
out.write('é'); out.detach()
