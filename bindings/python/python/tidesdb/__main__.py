"""`python -m tidesdb`: the program `tidesdb`, which the wheel of a release installs beside the interpreter's other programs."""

import os
import shutil
import subprocess
import sys
import sysconfig


def program() -> str:
    """The path of the program."""
    name = "tidesdb.exe" if os.name == "nt" else "tidesdb"
    user = sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))
    for folder in (sysconfig.get_path("scripts"), user):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    found = shutil.which(name)
    if found is None:
        sys.exit(
            "python -m tidesdb: the program `tidesdb` is not installed: the wheel of a release has it, and one that "
            "`cargo xtask wheel --release` builds"
        )
    return found


def main() -> None:
    """Runs the program with the arguments of this one."""
    command = [program(), *sys.argv[1:]]
    if os.name == "nt":
        sys.exit(subprocess.call(command))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
