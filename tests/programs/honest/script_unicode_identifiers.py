# name: script: unicode identifiers
# input: "5\r\n7 8\r\nend\r\n"
# ---
π, café = 3, 'x'
print(π, café, 'é' == 'e\u0301')
