# name: expression: 114 builtins
# input: ""
# ---
import builtins
print(2**100, pow(3, -1, 7), pow(2, 10**6, 97), int("-0b101", 0), int("z", 36), bin(-5), hex(255), oct(8))
