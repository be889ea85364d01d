# name: sources: coding: shift_jis
# input: ""
# output: "2 表示\n"
# ---
# coding: shift_jis
print(len('表示'), '表示')
