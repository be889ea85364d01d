# name: script: imports that fail
# input: "5\r\n7 8\r\nend\r\n"
# ---
for name in 'nosuchmodule', 'sortedcontainerz':
    try: __import__(name)
    except ImportError as e: print(type(e).__name__, e)
