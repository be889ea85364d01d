# name: expression: 59 base64
# input: ""
# ---
import base64
print(base64.b64encode(b"\x00\xff"), base64.b32decode("ME======"), base64.b85encode(b"abcd"), base64.b16encode(b"z"))
