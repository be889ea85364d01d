# name: expression: 48 json
# input: ""
# ---
import json
print(json.dumps({"a": [1, None, True, 1.5, "é"]}, sort_keys=True), json.loads('[1e3, -0, "\\u00e9"]'))
