# name: script: temporary folders
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, tempfile
with tempfile.TemporaryDirectory() as d:
    open(os.path.join(d, 'a'), 'w').close(); os.makedirs(d + '/x/y'); print(sorted(os.listdir(d)))
print(os.path.exists(d))
