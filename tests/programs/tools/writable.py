
import json, os
writable = []
for folder, names, files in os.walk("/", followlinks=False):
    if folder in ("/proc", "/sys"):
        names.clear()
        continue
    try:
        open(os.path.join(folder, "mark"), "w").close()
        os.unlink(os.path.join(folder, "mark"))
        writable.append(folder)
    except OSError:
        pass
print(json.dumps(writable))
