# name: script: temporary files
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, tempfile
with tempfile.TemporaryFile('w+') as f: f.write('hi'); f.seek(0); print(f.read())
with tempfile.NamedTemporaryFile() as f: f.write(b'x'); f.flush(); print(os.path.getsize(f.name))
print(os.path.exists(f.name), os.path.isdir(tempfile.gettempdir()))
s = tempfile.SpooledTemporaryFile(9); s.write(b'y' * 20); s.seek(0); print(s.read())
