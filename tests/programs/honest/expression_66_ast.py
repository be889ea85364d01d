# name: expression: 66 ast
# input: ""
# ---
import ast
print(ast.literal_eval("[1, (2, {'a': None})]"), ast.unparse(ast.parse("x = 1+2")), ast.dump(ast.parse("1", mode="eval")))
