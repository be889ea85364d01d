# name: platform: /dev/stdin through pathlib
# input: "1\n2\n"
# output: "['1', '2']\n"
# ---
import pathlib
print(pathlib.Path('/dev/stdin').read_text().split())
