# name: expression: 98 tokenize
# input: ""
# ---
import tokenize
print([t.string for t in tokenize.generate_tokens(iter(["x=1\n"]).__next__)][:3])
