# name: expression: 84 difflib
# input: ""
# ---
import difflib
print(difflib.get_close_matches("appel", ["ape", "apple"]), difflib.SequenceMatcher(None, "ab", "abc").ratio())
