"""Mounts folders with another owner, then executes another program. It is a separate program, run by root only.

A script with its own user id cannot read what only root may read, or write to a project that root owns. So each folder
is mounted over itself, in a mount namespace that ends with the run, with the owner's id mapped to the script's id.
Nothing changes on disk, and what the script creates belongs to the folder's owner. The invariant: nothing is visible
outside this process and its children, and if any step fails, the other program is not started.

    python -I -S idmap.py UID FOLDER... -- PROGRAM ARGUMENT...
"""

import ctypes
import os
import struct
import sys

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_REC_PRIVATE = 0x4000 | 0x40000
_OPEN_TREE = 428  # these numbers are the same on every architecture
_MOVE_MOUNT = 429
_MOUNT_SETATTR = 442
_OPEN_TREE_CLONE_CLOEXEC = 0x1 | 0x80000
_MOVE_MOUNT_F_EMPTY_PATH = 0x4
_MOUNT_ATTR_IDMAP = 0x00100000
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_IDS = 0xFFFFFFFF

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> None:
    split = arguments.index("--")
    uid, folders, program = int(arguments[0]), arguments[1:split], arguments[split + 1 :]
    _check(_libc.unshare(_CLONE_NEWNS), "mount namespace")
    _check(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None), "private mounts")
    for folder in folders:
        _remount(folder, uid)
    os.execv(program[0], program)  # noqa: S606


def _remount(folder: str, uid: int) -> None:
    status = os.stat(folder)
    path = os.fsencode(folder)
    tree = _call(_OPEN_TREE, ctypes.c_int(_AT_FDCWD), path, ctypes.c_uint(_OPEN_TREE_CLONE_CLOEXEC))
    namespace = _user_namespace(_lines(status.st_uid, uid), _lines(status.st_gid, uid))
    attributes = struct.pack("=QQQQ", _MOUNT_ATTR_IDMAP, 0, 0, namespace)
    size = ctypes.c_size_t(len(attributes))
    _call(_MOUNT_SETATTR, ctypes.c_int(tree), b"", ctypes.c_uint(_AT_EMPTY_PATH), attributes, size)
    flags = ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH)
    _call(_MOVE_MOUNT, ctypes.c_int(tree), b"", ctypes.c_int(_AT_FDCWD), path, flags)
    os.close(tree)
    os.close(namespace)


def _lines(owner: int, uid: int) -> str:
    """The id map: `owner` on disk is `uid` here, and all other ids known to this system stay the same."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        known = int(file.readline().split()[2])
    ranges = [(0, owner), (owner + 1, uid), (uid + 1, _IDS)] if known == _IDS else []
    return f"{owner} {uid} 1\n" + "".join(f"{low} {low} {high - low}\n" for low, high in ranges if high > low)


def _user_namespace(users: str, groups: str) -> int:
    """Return a descriptor of a user namespace with the two maps. No process stays in it."""
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(done[1])
        if _libc.unshare(_CLONE_NEWUSER) == 0:
            os.write(ready[1], b"1")
            os.read(done[0], 1)
        os._exit(0)
    os.close(ready[1])
    os.close(done[0])
    try:
        if not os.read(ready[0], 1):
            raise OSError("a user namespace cannot be created")
        for name, lines in (("uid_map", users), ("gid_map", groups)):
            with open(f"/proc/{child}/{name}", "w", encoding="ascii") as file:
                file.write(lines)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(done[1])
        os.close(ready[0])
        os.waitpid(child, 0)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    _check(result, {_OPEN_TREE: "open_tree", _MOUNT_SETATTR: "mount_setattr", _MOVE_MOUNT: "move_mount"}[number])
    return result


def _check(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        sys.exit(f"this file system or kernel cannot map the owner of a folder: {error}")
