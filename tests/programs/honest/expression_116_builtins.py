# name: expression: 116 builtins
# input: ""
# ---
import builtins
print((10**20).bit_length(), (255).to_bytes(2, "big"), int.from_bytes(b"\xff\xfe", "little", signed=True), (6).bit_count())
