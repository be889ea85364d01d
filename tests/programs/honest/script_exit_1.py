# name: script: exit -1
# input: "5\r\n7 8\r\nend\r\n"
# ---
exit(-1)
