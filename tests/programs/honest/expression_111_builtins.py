# name: expression: 111 builtins
# input: ""
# ---
import builtins
print(f"{3.14159:.2f} {255:#x} {1234567:,} {'a':*^5} {.5:.0%} {10:08b} {1e10:g} {-1:+d} {3!r:>4}")
