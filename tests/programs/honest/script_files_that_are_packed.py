# name: script: files that are packed
# input: "5\r\n7 8\r\nend\r\n"
# ---
import gzip, zipfile
with gzip.open('a.gz', 'wt') as f: f.write('zipped')
print(gzip.open('a.gz', 'rt').read())
with zipfile.ZipFile('a.zip', 'w') as z: z.writestr('x', 'y' * 99)
print(zipfile.ZipFile('a.zip').read('x')[:3])
