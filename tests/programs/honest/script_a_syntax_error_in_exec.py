# name: script: a syntax error in exec
# input: "5\r\n7 8\r\nend\r\n"
# ---
try: exec('a b')
except SyntaxError as e: print(e.msg, e.lineno)
