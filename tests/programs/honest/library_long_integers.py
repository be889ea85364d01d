# name: library: long integers
# input: ""
# output: "16902 44\n"
# ---
import sys
sys.set_int_max_str_digits(0)
print(len(str(7**20000)), int('9' * 9999) % 97)
