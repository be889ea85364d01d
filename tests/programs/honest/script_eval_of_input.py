# name: script: eval of input
# input: "5\r\n7 8\r\nend\r\n"
# ---
a = eval(input()); exec('b = a + 1'); print(b)
