# name: script: argv and environment
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, sys
print(sys.argv[1:], os.environ.get('ONLINE_JUDGE'), 'HOME' in os.environ or 1, len(sys.path) > 0)
