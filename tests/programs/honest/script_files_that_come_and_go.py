# name: script: files that come and go
# input: ""
# output: "True\n"
# ---
import os
import tempfile
import time

end = time.monotonic() + 0.5
number = 0
while time.monotonic() < end:
    number += 1
    with tempfile.TemporaryDirectory(dir=".") as folder:
        with open(f"{folder}/{number}", "w") as file:
            file.write("x" * 5000)
        os.rename(f"{folder}/{number}", f"moved-{number % 9}")
        with tempfile.TemporaryFile(dir=".") as file:
            file.write(b"x" * 5000)
print(number > 0)
