"""The least that judging can cost: fork a warm interpreter and execute compiled code, unconfined.

Run as a script of its own, standard library only, so that what is forked is small. On stdin comes
one pickle per pass, [(program, [input, ...]), ...], and on stdout goes that of the outputs; inputs
and outputs are bytes.
"""

import os
import pickle
import sys


def run(code: object, data: bytes) -> bytes:
    """Run compiled code on one input in a forked process; return its output."""
    stdin, stdout = os.memfd_create("in"), os.memfd_create("out")
    os.write(stdin, data)
    os.lseek(stdin, 0, os.SEEK_SET)
    pid = os.fork()
    if pid == 0:
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
        exec(code, {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    os.wait4(pid, 0)
    output = os.pread(stdout, os.fstat(stdout).st_size, 0)
    os.close(stdin)
    os.close(stdout)
    return output


def main() -> None:
    """Serve passes until stdin ends."""
    while True:
        try:
            work = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        outputs = []
        for program, inputs in work:
            code = compile(program, "main.py", "exec")
            outputs.append([run(code, data) for data in inputs])
        pickle.dump(outputs, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
