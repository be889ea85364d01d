# name: script: an assertion
# input: "5\r\n7 8\r\nend\r\n"
# ---
assert 1 + 1 == 3, 'no'
