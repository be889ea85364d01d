# name: script: a file changed in place
# input: "5\r\n7 8\r\nend\r\n"
# ---
with open('a', 'wb+') as f:
    f.write(bytes(range(9))); f.seek(3); f.write(b'xyz'); f.seek(0); print(f.read(), f.tell())
    f.truncate(4); f.seek(0); print(f.read())
