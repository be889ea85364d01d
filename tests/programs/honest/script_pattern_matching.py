# name: script: pattern matching
# input: "5\r\n7 8\r\nend\r\n"
# ---
def f(x):
    match x:
        case 0 | 1: return 'small'
        case [a, *rest] if rest: return a, rest
        case {'k': v, **o}: return v, o
        case str(s): return s
        case _: return None
print(f(1), f([1, 2]), f({'k': 1, 'z': 2}), f('s'), f([]))
