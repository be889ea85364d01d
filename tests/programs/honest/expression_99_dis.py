# name: expression: 99 dis
# input: ""
# ---
import dis
print(dis.stack_effect(dis.opmap["POP_TOP"]), len([*dis.get_instructions("x")]) > 1)
