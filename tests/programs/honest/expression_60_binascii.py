# name: expression: 60 binascii
# input: ""
# ---
import binascii
print(binascii.hexlify(b"ab"), binascii.unhexlify("6162"), binascii.crc_hqx(b"a", 0))
