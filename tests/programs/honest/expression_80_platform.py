# name: expression: 80 platform
# input: ""
# ---
import platform
print(platform.python_implementation(), platform.system(), platform.python_version_tuple()[0])
