# name: expression: 31 re
# input: ""
# ---
import re
print(re.compile(r"(a)|b", re.I).findall("AB"), re.search(r"(?s).+\Z", "a\nb").group(), re.I | re.M)
