# name: expression: 87 keyword
# input: ""
# ---
import keyword
print(keyword.iskeyword("for"), len(keyword.kwlist) > 30)
