
import os, sys
found = []
for path in ".", "main.py":
    status = os.stat(path)
    found += [status.st_mode, status.st_nlink, status.st_size, status.st_blocks]
    found += [status.st_atime > START, status.st_mtime > START, os.path.getmtime(path) > 0]
    found += [status.st_ino] * (FORM == "namespaces")
for number in range(3):
    with open(f"new-{number}", "w+b") as file:
        file.truncate(1 << 16)
        found += [os.stat(f"new-{number}").st_ino] * (FORM == "namespaces"), set(file.read())
print(found, sorted(os.listdir()), len(open(__file__).read()))
