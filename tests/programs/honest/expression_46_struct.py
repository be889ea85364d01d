# name: expression: 46 struct
# input: ""
# ---
import struct
print(struct.pack("<IhB", 1, -2, 3), struct.unpack(">d", bytes(8)), struct.calcsize("@bq"), struct.pack("3s", b"a"))
