# name: script: prompts
# input: "5\r\n7 8\r\nend\r\n"
# ---
print(int(input('a? ')) + int(input('b? ').strip() or 0))
