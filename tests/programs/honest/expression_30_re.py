# name: expression: 30 re
# input: ""
# ---
import re
print(re.sub("x", lambda m: str(m.start()), "axbx"), re.findall(r"(?<=a)b++", "abbab"), re.escape("a.b"))
