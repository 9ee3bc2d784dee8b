"""Attempts to break out of a sandbox, each a few lines that run inside it.

An attempt is the body of a function. It returns a true value if it succeeded, and an exception means that it failed.
`control` names where the same lines succeed, which proves that they can: "none" without a sandbox, "root" without a
sandbox for root, or "grant" with the grant that permits them. An attempt must be harmless if it succeeds: calls that
would change the machine have arguments that the kernel rejects, and what counts is whether the call reached the kernel.
"""

from dataclasses import dataclass
from typing import Literal

PRELUDE = '''#!/usr/bin/env -S python3 -I -S
import ctypes, errno, json, os, socket, sys
A = json.load(sys.stdin)
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    """The error number of a raw system call, 0 if it worked."""
    ctypes.set_errno(0)
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(A["nr"][name]), *converted)
    return ctypes.get_errno() if result == -1 else 0


def reached(name, *arguments):
    """Whether the kernel looked at a call at all, instead of the filter refusing it."""
    return call(name, *arguments) not in (errno.EPERM, errno.ENOSYS)


def content(path):
    with open(path, "rb") as file:
        return file.read(1 << 20)


def has(path):
    return A["token"].encode() in content(path)


def any_has(name):
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        path = "/proc/%s/%s" % (pid, name)
        try:
            if A["token"].encode() in content(path):
                return path
        except OSError:
            pass


def connect(family, address):
    with socket.socket(family) as stream:
        stream.settimeout(3)
        stream.connect(address)
        stream.sendall(b"got out")
    return True


def attempt():
    {body}


try:
    print(json.dumps([bool(attempt()), ""]))
except BaseException as error:
    print(json.dumps([False, repr(error)]))
'''


@dataclass(frozen=True)
class Grant:
    """What a job is granted. The test fills in the path of the project."""

    network: bool = False
    secret: bool = False
    """A value for the variable METIER_SECRET."""
    project: bool = False
    project_writable: bool = False
    works_there: bool = False
    """The project is the current folder."""


NOTHING = Grant()
NETWORK = Grant(network=True)
VARIABLE = Grant(secret=True)
PROJECT = Grant(project=True)
WRITABLE = Grant(project=True, project_writable=True)
WORKING = Grant(project=True, works_there=True)


NOT_PROMISED_IN_CONTAINERS = {
    "list-var": "the image has a folder /var",
    "list-boot-and-root": "the image has a folder /root",
    "list-sys": "engines show /sys, read-only",
    "read-the-kernel-command-line": "engines show /proc/cmdline, and the program of Docker cannot hide it",
    "other-devices": "engines add /dev/tty and /dev/full, which lead nowhere",
    "set-user-id-honoured-in-usr": "engines mount the image without nosuid; no new privileges are possible in any case",
    "control-groups": "engines show them, read-only",
    "our-control-group": "it has the number of the container",
    "what-is-above-the-working-folder": "it is the root of the image",
}
"""The attempts that succeed in a container and not in bubblewrap, with the reason. Nothing of the user is in reach."""


@dataclass(frozen=True)
class Attempt:
    name: str
    body: str
    control: Literal["none", "root", "grant", ""] = "none"
    grant: Grant = NOTHING
    """What the job is granted in the control."""
    also: Grant = NOTHING
    """What the job is granted in the attempt itself. It must not make the attempt succeed."""

    def text(self) -> str:
        return PRELUDE.replace("{body}", self.body.strip().replace("\n", "\n    "))


ATTEMPTS = [
    # --- reading ---
    Attempt("read-shadow", 'return content("/etc/shadow")', "root"),
    Attempt("read-passwd-of-the-host", 'return b"daemon" in content("/etc/passwd")'),
    Attempt("read-a-secret-by-its-path", 'return has(A["secret"])'),
    Attempt("read-home", 'return has(A["home"] + "/.ssh/id")'),
    Attempt("read-another-skill", 'return has(A["base"] + "/other-skill/SKILL.md")'),
    Attempt("read-upwards", 'return has("../" * 12 + A["secret"])'),
    Attempt("read-by-a-link-of-our-own", 'os.symlink(A["secret"], "l"); return has("l")'),
    Attempt("read-by-a-link-in-the-skill", 'return has(os.environ["SKILL_DIR"] + "/link")', ""),
    Attempt("read-by-a-linked-folder", 'return has(os.environ["SKILL_DIR"] + "/link-folder/.ssh/id")', ""),
    Attempt("read-by-a-hard-link", 'os.link(A["secret"], "h"); return has("h")'),
    Attempt("read-through-the-first-process", 'return has("/proc/1/root" + A["secret"])', ""),
    Attempt("read-through-our-own-root", 'return has("/proc/self/root" + A["secret"])'),
    Attempt("read-by-a-rename", 'os.rename(A["base"] + "/moved", "m"); return True', ""),
    Attempt("list-var", 'return os.listdir("/var")'),
    Attempt("list-run-and-its-sockets", 'return os.listdir("/run")'),
    Attempt("list-sys", 'return os.listdir("/sys/kernel")'),
    Attempt("list-boot-and-root", 'return os.path.exists("/root") or os.path.exists("/boot")'),
    Attempt("find-the-container-engine", 'return any(map(os.path.exists, ["/var/run/docker.sock", "/run/dbus"]))', ""),
    Attempt("read-the-kernel-command-line", 'return content("/proc/cmdline")'),
    Attempt("read-kernel-keys", 'return content("/proc/keys")', ""),
    Attempt("read-kernel-memory", 'return content("/proc/kcore")', ""),
    Attempt("file-handles", 'return reached("name_to_handle_at", -100, b"/", 0, 0, 0)'),
    Attempt("file-handles-open", 'return reached("open_by_handle_at", -1, 0, 0)', "root"),
    Attempt("inherited-descriptors", "return [n for n in map(int, os.listdir('/proc/self/fd')) if n > 3]", ""),
    Attempt(
        "read-the-project",
        """
return has(os.environ.get("PROJECT_DIR", A["project"]) + "/notes.txt")
""",
        "grant",
        PROJECT,
    ),
    # --- environment and arguments of other processes ---
    Attempt("environment-of-the-host", 'return os.environ.get("METIER_SECRET")', "grant", VARIABLE),
    Attempt("environment-of-processes", 'return any_has("environ")'),
    Attempt("arguments-of-processes", 'return any_has("cmdline")'),
    Attempt("arguments-of-the-sandbox", 'return b"--ro-bind" in content("/proc/1/cmdline")', ""),
    # --- processes of the host ---
    Attempt("see-a-process", 'return os.path.exists("/proc/%d/comm" % A["victim"])'),
    Attempt("signal-a-process", 'os.kill(A["victim"], 18); return True'),
    Attempt("kill-a-process", 'os.kill(A["victim"], 9); return True', ""),
    Attempt("kill-the-launcher", 'os.kill(A["host"], 0); return True'),
    Attempt("pidfd-of-a-process", 'os.close(os.pidfd_open(A["victim"])); return True'),
    Attempt("steal-a-descriptor", 'return reached("pidfd_getfd", -1, 0, 0)'),
    Attempt("affinity-of-a-process", 'return os.sched_getaffinity(A["victim"])'),
    Attempt("priority-of-a-process", 'os.getpriority(os.PRIO_PROCESS, A["victim"]); return True'),
    Attempt("limits-of-a-process", 'import resource; return resource.prlimit(A["victim"], resource.RLIMIT_NOFILE)'),
    Attempt("ptrace", 'return reached("ptrace", 0x4206, A["victim"], 0, 0)', "root"),
    Attempt("ptrace-with-a-nonsense-request", 'return reached("ptrace", 999, 0, 0, 0)'),
    Attempt("read-memory-of-a-process", 'return reached("process_vm_readv", os.getpid(), 0, 0, 0, 0, 0)'),
    Attempt("write-memory-of-a-process", 'return reached("process_vm_writev", os.getpid(), 0, 0, 0, 0, 0)'),
    Attempt("memory-file-of-a-process", 'return open("/proc/%d/mem" % A["victim"], "rb")'),
    Attempt("compare-processes", 'return reached("kcmp", os.getpid(), os.getpid(), 0, 1, 1)'),
    Attempt(
        "first-process-has-more-than-we",
        """
s = dict(l.split(":\\t", 1) for l in content("/proc/1/status").decode().splitlines() if ":\\t" in l)
return int(s["CapEff"], 16) or int(s["CapPrm"], 16) or s["Seccomp"] != "2" or s["NoNewPrivs"] != "1"
""",
    ),
    Attempt("program-of-the-first-process", 'return open("/proc/1/exe", "r+b")', ""),
    # --- network ---
    Attempt("tcp-to-the-host", 'return connect(socket.AF_INET, ("127.0.0.1", A["tcp"]))', "grant", NETWORK),
    Attempt("tcp6-to-the-host", 'return connect(socket.AF_INET6, ("::1", A["tcp6"]))', "grant", NETWORK),
    Attempt(
        "udp-to-the-host",
        """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
return s.sendto(b"got out", ("127.0.0.1", A["udp"]))
""",
        "grant",
        NETWORK,
    ),
    Attempt(
        "dns-query",
        """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
query = b"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\6secret\\7example\\0\\0\\1\\0\\1"
return s.sendto(query, ("127.0.0.1", A["udp"]))
""",
        "grant",
        NETWORK,
    ),
    Attempt("name-servers-of-the-host", 'return content("/etc/resolv.conf")', "grant", NETWORK),
    Attempt("listen", 'return socket.create_server(("127.0.0.1", 0))', "grant", NETWORK),
    Attempt("see-connections", 'return b":%04X " % A["tcp"] in content("/proc/net/tcp")', "grant", NETWORK),
    Attempt("unix-socket-of-the-host", 'return connect(socket.AF_UNIX, A["base"] + "/service.sock")'),
    Attempt("abstract-socket-of-the-host", 'return connect(socket.AF_UNIX, "\\0" + A["abstract"])'),
    Attempt("abstract-socket-with-network", 'return connect(socket.AF_UNIX, "\\0" + A["abstract"])', also=NETWORK),
    Attempt("unix-socket-with-project", 'return connect(socket.AF_UNIX, A["base"] + "/service.sock")', also=PROJECT),
    Attempt("raw-socket", "return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", "root"),
    Attempt(
        "raw-socket-with-network", "return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", "root", also=NETWORK
    ),
    Attempt("packet-socket", "return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", "root"),
    Attempt(
        "packet-socket-with-network", "return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", "root", also=NETWORK
    ),
    Attempt("netlink-socket", "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"),
    Attempt("netlink-socket-with-network", "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", also=NETWORK),
    Attempt("crypto-socket", "return socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)", ""),
    Attempt("vm-socket", "return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)", ""),
    Attempt(
        "socket-family-in-the-upper-half",
        """
return call("socket", (1 << 32) | 2, 1, 0) == 0
""",
    ),
    # --- privileges ---
    Attempt("be-root", "return os.getuid() == 0 or os.geteuid() == 0", "root"),
    Attempt("become-root", "os.setuid(0); return True", "root"),
    Attempt("become-another-group", "os.setgroups([0]); return True", "root"),
    Attempt("gain-by-a-set-user-id-program", 'return b"NoNewPrivs:\\t0" in content("/proc/self/status")'),
    Attempt("set-user-id-honoured-in-usr", 'return not os.statvfs("/usr/bin").f_flag & os.ST_NOSUID'),
    Attempt(
        "make-a-set-user-id-program",
        """
import shutil
shutil.copy("/bin/true", "su"); os.chmod("su", 0o6755)
return not os.statvfs(".").f_flag & os.ST_NOSUID
""",
    ),
    Attempt(
        "have-capabilities",
        """
s = dict(l.split(":\\t", 1) for l in content("/proc/self/status").decode().splitlines() if ":\\t" in l)
return any(int(s[key], 16) for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
""",
    ),
    Attempt(
        "map-another-user",
        """
before = content("/proc/self/uid_map")
with open("/proc/self/uid_map", "w") as file: file.write("0 0 1")
return True
""",
        "",
    ),
    Attempt(
        "raise-a-limit",
        """
import resource
resource.setrlimit(resource.RLIMIT_NPROC, (100000, 100000)); return True
""",
        "",
    ),
    Attempt("real-time-priority", "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)); return True", ""),
    Attempt(
        "never-be-killed-for-memory",
        """
with open("/proc/self/oom_score_adj", "w") as file: file.write("-1000")
return True
""",
        "",
    ),
    # --- the kernel ---
    Attempt("mount", 'return reached("mount", b"none", b"/no/such/folder", b"tmpfs", 0, 0)'),
    Attempt("unmount", 'return reached("umount2", b"/no/such/folder", 0)', "root"),
    Attempt("new-mount-interface", 'return reached("fsopen", b"no-such-file-system", 0)', "root"),
    Attempt("clone-a-mount", 'return reached("open_tree", -100, b"/no/such/folder", 0)'),
    Attempt("pivot-root", 'return reached("pivot_root", b"/no/such/folder", b"/no/such/folder")', "root"),
    Attempt("chroot", 'return reached("chroot", b"/no/such/folder")'),
    Attempt("unshare", 'return reached("unshare", 0)'),
    Attempt(
        "new-user-namespace-by-clone",
        """
child = libc.syscall(ctypes.c_long(A["nr"]["clone"]), ctypes.c_long(0x10000000 | 17), 0, 0, 0, 0)
if child == 0: os._exit(0)
if child > 0: os.waitpid(child, 0)
return child > 0
""",
    ),
    Attempt("new-namespace-by-clone3", 'return reached("clone3", 0, 0)'),
    Attempt("join-a-namespace", 'return reached("setns", -1, 0)'),
    Attempt("load-bpf", 'return reached("bpf", -1, 0, 0)', "root"),
    Attempt("keyrings", 'return reached("keyctl", 0, -3, 0)'),
    Attempt("add-a-key", 'return reached("add_key", 0, 0, 0, 0, 0)'),
    Attempt("user-faults", 'return reached("userfaultfd", -1)', "root"),
    Attempt("performance-events", 'return reached("perf_event_open", 0, 0, 0, 0, 0)', ""),
    Attempt("io-uring", 'return reached("io_uring_setup", 0, 0)', ""),
    Attempt("kernel-modules", 'return reached("init_module", 0, 0, 0)', ""),
    Attempt("reboot", 'return reached("reboot", 0, 0, 0, 0)', "root"),
    Attempt("set-the-clock", 'return reached("clock_settime", 99999, 0)'),
    Attempt("set-the-host-name", 'return reached("sethostname", b"x", -1)', "root"),
    Attempt("kernel-log", 'return reached("syslog", 99999, 0, 0)', "root"),
    Attempt("switch-off-randomisation", "return libc.personality(0x40000) != -1"),
    Attempt("memory-outside-of-limits", 'fd = os.memfd_create("x"); return True'),
    Attempt(
        "shared-memory-of-system-v",
        """
segment = libc.shmget(0, 4096, 0o1600)
if segment >= 0: libc.shmctl(segment, 0, None)
return segment >= 0
""",
    ),
    Attempt(
        "calls-of-another-architecture",
        """
import mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b"\\x53\\xb8\\x14\\0\\0\\0\\xcd\\x80\\x5b\\xc3")  # push rbx; mov eax, getpid; int 0x80; pop rbx; ret
enter = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
return enter() > 0
""",
        "none" if __import__("platform").machine() == "x86_64" else "",
    ),
    Attempt("calls-of-the-x32-kind", 'A["nr"]["x"] = 0x40000000 + 39; return reached("x")', ""),
    Attempt("calls-nobody-knows-yet", 'A["nr"]["x"] = 463; return reached("x", -1, 0, 0, 0, 0, 0)', ""),
    # --- devices and the terminal ---
    Attempt(
        "device-node",
        """
os.mknod("node", 0o020666, os.makedev(1, 3))
os.unlink("node")
return True
""",
        "root",
    ),
    Attempt("kernel-log-device", 'return open("/dev/kmsg", "rb")', "root"),
    Attempt("memory-and-disk-devices", 'return [open(p, "rb") for p in ("/dev/mem", "/dev/sda", "/dev/vda")]', ""),
    Attempt(
        "other-devices",
        """
known = "null zero random urandom fd stdin stdout stderr shm".split()
return set(os.listdir("/dev")) - set(known)
""",
    ),
    Attempt("controlling-terminal", 'return open("/dev/tty", "rb")', ""),
    Attempt("type-into-the-terminal", 'return reached("ioctl", 0, 0x5412, b"x")'),
    Attempt("type-with-upper-bits-set", 'return reached("ioctl", 0, (1 << 32) | 0x5412, b"x")'),
    Attempt("paste-into-the-console", 'return reached("ioctl", 0, 0x541C, b"x")'),
    Attempt("kernel-settings", 'return open("/proc/sys/kernel/core_pattern", "r+b")', "root"),
    Attempt("system-request-trigger", 'return open("/proc/sysrq-trigger", "wb")', ""),
    # --- writing ---
    Attempt("write-to-the-host-by-path", 'open(A["base"] + "/escaped", "w").close(); return True', "root"),
    Attempt("write-to-the-skill", 'open(os.environ["SKILL_DIR"] + "/written", "w").close(); return True', "root"),
    Attempt("change-a-file-of-the-skill", 'return open(os.environ["SKILL_DIR"] + "/data.txt", "a").write("x")', "root"),
    Attempt("change-a-mode-of-a-skill", 'os.chmod(os.environ["SKILL_DIR"] + "/data.txt", 0o777); return True', "root"),
    Attempt("touch-the-skill", 'os.utime(os.environ["SKILL_DIR"] + "/data.txt"); return True', "root"),
    Attempt("delete-from-the-skill", 'os.unlink(os.environ["SKILL_DIR"] + "/data.txt"); return True', "root"),
    Attempt("rename-the-skill", 'os.rename(os.environ["SKILL_DIR"], os.environ["SKILL_DIR"] + "2"); return True', ""),
    Attempt("write-to-usr", 'return os.access("/usr/bin", os.W_OK) or os.access("/usr/local/lib", os.W_OK)', "root"),
    Attempt("write-to-etc", 'return os.access("/etc", os.W_OK) or os.access("/etc/passwd", os.W_OK)', "root"),
    Attempt("write-to-the-root", 'return os.access("/", os.W_OK) or os.access("/dev", os.W_OK)', "root"),
    Attempt("write-to-the-linker-cache", 'return os.access("/etc/ld.so.cache", os.W_OK)', "root"),
    Attempt(
        "write-to-a-read-only-project",
        """
with open(os.environ["PROJECT_DIR"] + "/notes.txt", "a") as file: file.write("x")
return True
""",
        "grant",
        WRITABLE,
        also=PROJECT,
    ),
    Attempt("out-of-a-writable-project", 'return has(os.environ["PROJECT_DIR"] + "/../secret.txt")', also=WRITABLE),
    Attempt("out-of-the-working-folder", 'return has("../secret.txt") or has(A["secret"])', also=WORKING),
    Attempt(
        "out-of-the-working-folder-by-a-link", 'os.symlink("../secret.txt", "l"); return has("l")', "", also=WORKING
    ),
    Attempt(
        "change-the-working-folder-on-disk",
        """
for name in ("notes.txt", ".git/config", "new.txt"):
    with open(name, "a") as file: file.write("x")
os.rename("notes.txt", "moved.txt"); os.chmod(".", 0o777)
return False
""",
        "",
        also=WORKING,
    ),
    Attempt(
        "a-sandbox-in-the-sandbox",
        """
import subprocess
return subprocess.run(["bwrap", "--ro-bind", "/", "/", "/bin/true"], capture_output=True).returncode == 0
""",
    ),
]
