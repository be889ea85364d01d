# name: expression: 128 builtins
# input: ""
# ---
import builtins
print(bytes([65, 66]), bytearray(b"ab") + b"c", memoryview(b"abc")[1], bytes.fromhex("6162"), b"a%db" % 5, b"ab".hex())
