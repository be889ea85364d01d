# name: expression: 65 uuid
# input: ""
# ---
import uuid
print(uuid.UUID(int=5), uuid.uuid5(uuid.NAMESPACE_DNS, "x"), len(str(uuid.uuid4())))
