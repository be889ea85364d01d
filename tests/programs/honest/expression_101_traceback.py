# name: expression: 101 traceback
# input: ""
# ---
import traceback
print(traceback.format_exception_only(ValueError("x")), len(traceback.extract_stack()))
