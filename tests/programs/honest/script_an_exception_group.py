# name: script: an exception group
# input: "5\r\n7 8\r\nend\r\n"
# ---
print('in')
raise ExceptionGroup('g', [ValueError(1), TypeError(2)])
