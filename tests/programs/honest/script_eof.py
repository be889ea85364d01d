# name: script: EOF
# input: "5\r\n7 8\r\nend\r\n"
# ---
try: input()
except EOFError as e: print(e)
input()
