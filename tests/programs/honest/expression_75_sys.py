# name: expression: 75 sys
# input: ""
# ---
import sys
print(sys.float_info.max, sys.int_info.bits_per_digit, sys.hash_info.modulus, sys.intern("a"), sys.implementation.name)
