
import errno, json, os, sys
world, leaks = json.loads(sys.stdin.readline()), []
library = os.path.dirname(os.__file__)  # a folder that is not empty cannot be removed
for name, action in (("everyone", lambda: os.kill(-1, 0)),
                     ("canary", lambda: os.kill(world["pid"], 0)),
                     ("read", lambda: open(world["file"])),
                     ("write", lambda: open(os.__file__, "r+b")),
                     ("chmod", lambda: os.chmod(os.__file__, 0o644))):
    try:
        action()
        leaks.append(name)
    except OSError:
        pass
for name, action in (("rename", lambda: os.rename(os.__file__, os.__file__)),
                     ("rmdir", lambda: os.rmdir(library))):
    try:
        action()
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES, errno.EROFS):
            leaks.append(name)
print("BROKEN:" + ",".join(leaks) if leaks else "HELD")
