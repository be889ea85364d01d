# name: script: /dev/stdout through pathlib
# input: "5\r\n7 8\r\nend\r\n"
# ---
import pathlib
print(1, flush=True)
pathlib.Path('/dev/stdout').write_text('2\n')
