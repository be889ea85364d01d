# name: expression: 69 types
# input: ""
# ---
import types
print(types.SimpleNamespace(a=1), types.MappingProxyType({1: 2}), type(lambda: 0) is types.FunctionType)
