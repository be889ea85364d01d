# name: expression: 56 unicodedata
# input: ""
# ---
import unicodedata
print(unicodedata.normalize("NFD", "é"), unicodedata.name("é"), unicodedata.category("A"), unicodedata.numeric("½"))
