# name: expression: 64 secrets
# input: ""
# ---
import secrets
print(len(secrets.token_hex(8)), secrets.randbelow(1), secrets.compare_digest("a", "a"))
