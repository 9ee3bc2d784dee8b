"""Does in namespaces what neither bubblewrap nor the host can do. It is a separate program.

It prepares folders in a mount namespace of its own, then executes bubblewrap, which can only mount folders as they are.
Three things need more, and each is a directory below /tmp afterwards, where bubblewrap takes it from:

- The skill of a large tree is unpacked into memory.
- A folder of the host that is shown to the script is mounted through an overlay. Its path does not appear in the
  sandbox's list of mounts, and a Unix socket in it cannot be connected to.
- A folder in which the script works gets a writable layer in memory. Nothing reaches the disk from here: the host reads
  the layer after the run (see `collect.py` and `changes.py`). Files that the run was given are put into that layer.

A script that root started has its own user id. Folders of the user are mounted with the owner's id mapped to that id,
so nothing changes on disk. The invariant: nothing is visible outside this process and its children, and if any step
fails, bubblewrap is not started.

    python -I -S stage.py STEP... -- PROGRAM ARGUMENT...

A step has six words, of which the last may be empty:

    user UID GID                       a user namespace, for callers that are not root
    skill FD                           unpack the tree that can be read from the descriptor
    show FOLDER NAME OWNER             OWNER is the id to which the folder's owner is mapped if it can be, or empty
    write FOLDER NAME OWNER BYTES ENTRIES
    layer FOLDER NAME OWNER BYTES ENTRIES
                                       like `write`; where the kernel cannot do that, like `show`
    put FD NAME OWNER                  unpack files into a folder that was mounted before

It also opens a listening socket in the network namespace of a sandbox, and hands it to the host. A sandbox without a
network has a loopback interface of its own. A socket that listens there can be reached by the script and by nobody
else, and a socket stays in its namespace wherever its descriptor goes. So the host accepts the connections of a script
itself, and no process of ours has to be in the sandbox. Entering the namespace of an ordinary user needs a process with
one thread, which the host is not.

    python -I -S stage.py listen NAMESPACE PORT    standard input is a Unix socket, over which the descriptor is sent
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_SCRATCH = "/tmp"  # noqa: S108 (covered by a file system of our own)
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_NS_GET_USERNS = 0xB701
_BACKLOG = 64
_MS_NOSUID_NODEV = 0x2 | 0x4
_MS_BIND = 0x1000
_MNT_DETACH = 2
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
    steps, program = [arguments[at : at + 6] for at in range(0, split, 6)], arguments[split + 1 :]
    own_users = steps[0][0] == "user"
    flags, what = (_CLONE_NEWUSER | _CLONE_NEWNS, "user and ") if own_users else (_CLONE_NEWNS, "")
    _check(_libc.unshare(flags), f"{what}mount namespace")
    if own_users:
        _map_own_id(*steps.pop(0)[1:3])
    _mount(None, "/", None, _MS_REC_PRIVATE, None, "private mounts")
    # Opened first, because the scratch folder may cover them.
    opened = [int(word) if kind in ("skill", "put") else os.open(word, os.O_PATH) for kind, word, *_ in steps]
    _mount("tmpfs", _SCRATCH, "tmpfs", _MS_NOSUID_NODEV, "mode=0755", "scratch folder")
    os.mkdir(f"{_SCRATCH}/.empty")
    for (kind, _, name, owner, *size), descriptor in zip(steps, opened):  # noqa: B905 - both have the same length
        place = f"{_SCRATCH}/{name or kind}"
        if kind != "put":
            os.mkdir(place)
        if kind in ("skill", "put"):
            _unpack(descriptor, place, replaced_for=owner if kind == "put" else None)
        elif kind == "show":
            try:
                lower = _lower(descriptor, name, owner)
            except OSError:  # this file system cannot map owners: the script reads what every user can
                lower = _lower(descriptor, name, "")
            _show(lower, place)
        else:
            try:
                _write_to(_lower(descriptor, name, owner), name, [owner, *size], own_users)
            except OSError:
                if kind == "write":
                    raise
                _layer_over(descriptor, name, [owner, *size], own_users)
    os.execv(program[0], program)  # noqa: S606


def listen(namespace: int, port: int) -> None:
    import fcntl
    import socket

    owner = fcntl.ioctl(namespace, _NS_GET_USERNS)
    if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:
        _check(_libc.setns(owner, _CLONE_NEWUSER), "setns")
    _check(_libc.setns(namespace, _CLONE_NEWNET), "setns")
    listener = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
    # Fails if the loopback interface is down. Nobody else is in the namespace yet.
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        listener.accept()[0].close()
    with socket.socket(fileno=0) as host:
        socket.send_fds(host, [b"listening"], [listener.fileno()])


# --- the steps ---


def _unpack(archive: int, place: str, replaced_for: str | None = None) -> None:
    """Write the files of a tree: path, kind and size, each ended by a NUL byte, and then the bytes of the file.

    With `replaced_for`, they may replace others and are the script's own, which has this user id if it is not empty.
    """
    with os.fdopen(archive, "rb") as stream:
        data = stream.read()
    position = 0
    while position < len(data):
        words: list[bytes] = []
        for _ in range(3):
            end = data.index(b"\0", position)
            words.append(data[position:end])
            position = end + 1
        content = data[position : position + int(words[2])]
        position += len(content)
        path = os.path.join(os.fsencode(place), words[0])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if words[1] == b"link":
            os.symlink(content, path)
            continue
        mode = 0o555 if words[1] == b"program" else 0o444
        if replaced_for is not None:
            mode = 0o644
            if os.path.lexists(path):
                os.unlink(path)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        left = memoryview(content)
        while left:
            left = left[os.write(file, left) :]
        os.fchmod(file, mode)
        if replaced_for:
            os.fchown(file, int(replaced_for), int(replaced_for))
        os.close(file)


def _lower(folder: int, name: str, owner: str) -> str:
    """The path at which an open folder can be mounted from, with its owner mapped to another id if one is given."""
    if not owner:
        return f"/proc/self/fd/{folder}"
    place = f"{_SCRATCH}/.{name}"
    os.mkdir(place)
    status = os.fstat(folder)
    source = f"/proc/self/fd/{folder}".encode()
    tree = _call(_OPEN_TREE, ctypes.c_int(_AT_FDCWD), source, ctypes.c_uint(_OPEN_TREE_CLONE_CLOEXEC))
    namespace = _user_namespace(_lines(status.st_uid, int(owner)), _lines(status.st_gid, int(owner)))
    attributes = struct.pack("=QQQQ", _MOUNT_ATTR_IDMAP, 0, 0, namespace)
    size = ctypes.c_size_t(len(attributes))
    _call(_MOUNT_SETATTR, ctypes.c_int(tree), b"", ctypes.c_uint(_AT_EMPTY_PATH), attributes, size)
    flags = ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH)
    _call(_MOVE_MOUNT, ctypes.c_int(tree), b"", ctypes.c_int(_AT_FDCWD), place.encode(), flags)
    os.close(tree)
    os.close(namespace)
    return place


def _show(lower: str, place: str) -> None:
    """Mount a folder read-only. Where the kernel has no overlay for it, the folder itself is mounted."""
    options = f"lowerdir={lower}:{_SCRATCH}/.empty"
    try:
        _mount("overlay", place, "overlay", _MS_NOSUID_NODEV, options, "overlay")
    except OSError:
        _mount(lower, place, None, _MS_BIND, None, "folder")


def _write_to(lower: str, name: str, rest: list[str], own_users: bool) -> None:
    """Mount a folder with a writable layer, of which the top belongs to the script."""
    owner, size, entries = rest
    layer = f"{_SCRATCH}/.{name}-changes"
    upper, work = f"{layer}/upper", f"{layer}/work"
    if not os.path.isdir(layer):
        os.mkdir(layer)
        _mount("tmpfs", layer, "tmpfs", _MS_NOSUID_NODEV, f"mode=0700,size={size},nr_inodes={entries}", "layer")
        os.mkdir(upper)
        os.mkdir(work)
    os.chmod(upper, os.stat(lower).st_mode & 0o7777)
    if owner:
        os.chown(upper, int(owner), int(owner))
    # Renaming a folder would need an attribute that says where it was; instead, programs are told to copy.
    options = f"lowerdir={lower},upperdir={upper},workdir={work},index=off,metacopy=off"
    options += ",userxattr" if own_users else ",redirect_dir=nofollow"
    _mount("overlay", f"{_SCRATCH}/{name}", "overlay", _MS_NOSUID_NODEV, options, "overlay for changes")


def _layer_over(folder: int, name: str, rest: list[str], own_users: bool) -> None:
    """Do without mapping the owner, and then without a layer: the script can still read the folder.

    The host sees that there is no layer, because its folder is not there.
    """
    lower, layer = f"/proc/self/fd/{folder}", f"{_SCRATCH}/.{name}-changes"
    try:
        _write_to(lower, name, rest, own_users)
    except OSError:
        if os.path.isdir(layer):
            _check(_libc.umount2(os.fsencode(layer), _MNT_DETACH), "layer")
            os.rmdir(layer)
        _show(lower, f"{_SCRATCH}/{name}")


# --- namespaces and ids ---


def _map_own_id(uid: str, gid: str) -> None:
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


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
        with open("/proc/thread-self/children", encoding="ascii") as file:
            seen = file.read().strip()  # its number in the host's /proc, not in our own namespace
        for name, lines in (("uid_map", users), ("gid_map", groups)):
            with open(f"/proc/{seen}/{name}", "w", encoding="ascii") as file:
                file.write(lines)
        return os.open(f"/proc/{seen}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(done[1])
        os.close(ready[0])
        os.waitpid(child, 0)


# --- system calls ---


def _mount(source: str | None, place: str, kind: str | None, flags: int, options: str | None, what: str) -> None:
    words = [os.fsencode(word) if word is not None else None for word in (source, place, kind)]
    data = options.encode() if options is not None else None
    _check(_libc.mount(*words, ctypes.c_ulong(flags), data), what)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    _check(result, {_OPEN_TREE: "open_tree", _MOUNT_SETATTR: "mount_setattr", _MOVE_MOUNT: "move_mount"}[number])
    return result


def _check(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


if __name__ == "__main__":
    own_code = os.path.basename(sys.argv[0])
    if own_code.isdigit():  # this file was read from a descriptor, which the script must not inherit
        os.close(int(own_code))
    listens = sys.argv[1] == "listen"
    try:
        listen(int(sys.argv[2]), int(sys.argv[3])) if listens else main(sys.argv[1:])
    except OSError as error:
        what = "no socket in the sandbox" if listens else None
        sys.exit(f"{what or 'this kernel or file system cannot mount a folder for the sandbox'}: {error}")
