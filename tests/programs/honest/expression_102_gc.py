# name: expression: 102 gc
# input: ""
# ---
import gc
print(gc.isenabled(), gc.get_threshold(), gc.collect() >= 0, gc.is_tracked([]))
