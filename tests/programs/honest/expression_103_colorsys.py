# name: expression: 103 colorsys
# input: ""
# ---
import colorsys
print(colorsys.rgb_to_hsv(1, 0, 0))
