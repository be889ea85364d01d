# name: sources: coding: cp1251
# input: ""
# output: "2 да\n"
# ---
# -*- coding: cp1251 -*-
print(len('да'), 'да')
