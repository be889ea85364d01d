# name: script: a hundred files
# input: "5\r\n7 8\r\nend\r\n"
# ---
fs = [open(f'f{i}', 'w+') for i in range(100)]
for i, f in enumerate(fs): f.write(str(i)); f.seek(0)
print(sum(int(f.read()) for f in fs))
