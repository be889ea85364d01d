# name: expression: 49 json
# input: ""
# ---
import json
print(json.dumps([1, {"b": 2}], indent=1, ensure_ascii=False), json.dumps(float("inf")), json.loads("NaN"))
