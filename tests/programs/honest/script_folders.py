# name: script: folders
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, pathlib
os.mkdir('d'); os.rename('d', 'e'); pathlib.Path('e/f').write_text('hi'); pathlib.Path('e/g').touch()
print([(r, sorted(s), sorted(f)) for r, s, f in os.walk('.') if r != '.'])
os.replace('e/f', 'h'); os.unlink('e/g'); os.rmdir('e'); print(pathlib.Path('h').read_text(), os.path.isdir('e'))
os.chdir('/'); print(os.getcwd())
