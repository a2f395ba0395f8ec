/* The minimum cost of a start: the clone, the mounts, the pivot, the filter, the Landlock rules and the execve of
 * `stockade run`\'s default. The program verifies, limits and reports nothing else, its errors have no step, and it
 * supports only this one view. It is a reference for measurements, not a sandbox.
 *
 *     cc -O2 -static -o floor floor.c
 *     floor FILTER ID PROGRAM [WORD...]      FILTER: instructions of classic BPF; ID: the workload's id on the host
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif
#define COUNT(list) (sizeof(list) / sizeof *(list))

struct clone3_arguments { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls; };

static void die(const char *what) {
    dprintf(2, "floor: %s: %s\n", what, strerror(errno));
    _exit(125);
}

static int must(long result, const char *what) {
    if (result < 0) die(what);
    return (int)result;
}

static void set_attributes(int tree, uint64_t set, int recursive) {
    struct mount_attr attributes = { .attr_set = set };
    int flags = AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0);
    must(syscall(SYS_mount_setattr, tree, "", flags, &attributes, sizeof attributes), "mount_setattr");
}

static void attach(int tree, int at, const char *path) {
    int flags = MOVE_MOUNT_F_EMPTY_PATH | (*path ? 0 : MOVE_MOUNT_T_EMPTY_PATH);
    must(syscall(SYS_move_mount, tree, "", at, path, flags), path);
}

/* `options` alternates names and values. */
static int file_system(const char *type, uint64_t attributes, const char *const *options) {
    int context = must(syscall(SYS_fsopen, type, FSOPEN_CLOEXEC), type);
    for (; options && *options; options += 2)
        must(syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, options[0], options[1], 0), options[0]);
    must(syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, 0, 0, 0), type);
    int tree = must(syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, attributes), type);
    close(context);
    return tree;
}

static int clone_tree(int at, const char *path, int recursive) {
    return syscall(SYS_open_tree, at, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (recursive ? AT_RECURSIVE : 0));
}

static void show(const char *source, int root, const char *path, uint64_t attributes, int directory) {
    int tree = clone_tree(AT_FDCWD, source, 1);
    if (tree < 0) return;
    set_attributes(tree, attributes, 1);
    if (directory) mkdirat(root, path, 0755); else mknodat(root, path, S_IFREG | 0444, 0);
    attach(tree, root, path);
    close(tree);
}

static void text(int root, const char *path, const char *content) {
    int file = must(openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644), path);
    must(write(file, content, strlen(content)), path);
    close(file);
}

#define BIND (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define QUIET (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

static int build_root(void) {
    const char *const scratch_options[] = { "size", "536870912", "nr_inodes", "65536", "mode", "755", 0 };
    const char *const root_options[] = { "size", "4m", "nr_inodes", "4096", "mode", "755", 0 };
    const char *const dev_options[] = { "size", "64k", "nr_inodes", "256", "mode", "755", 0 };
    const char *const pts_options[] = { "ptmxmode", "0666", "mode", "0620", "max", "64", 0 };
    static const char *const links[][2] = { { "usr/bin", "bin" }, { "usr/sbin", "sbin" }, { "usr/lib", "lib" },
        { "usr/lib64", "lib64" }, { "/usr/share/zoneinfo/Etc/UTC", "etc/localtime" },
        { "../usr/lib/os-release", "etc/os-release" } };
    static const char *const etc[][2] = { { "/etc/ld.so.cache", "f" }, { "/etc/alternatives", "d" }, { "/etc/ssl/certs", "d" },
        { "/etc/ssl/openssl.cnf", "f" }, { "/etc/java-17-openjdk", "d" } };
    static const char *const nodes[] = { "null", "zero", "full", "random", "urandom", "tty" };
    static const char *const dev_links[][2] = { { "/proc/self/fd", "fd" }, { "/proc/self/fd/0", "stdin" },
        { "/proc/self/fd/1", "stdout" }, { "/proc/self/fd/2", "stderr" }, { "pts/ptmx", "ptmx" } };
    static const struct { const char *path, *name; mode_t mode; uint64_t attributes; } spaces[] = {
        { "dev/shm", "1", 01777, QUIET }, { "tmp", "2", 01777, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV },
        { "home/sandbox", "3", 0700, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV } };
    static const char *const masked[] = { "interrupts", "kallsyms", "kcore", "key-users", "keys", "kmsg", "latency_stats",
        "sched_debug", "timer_list", "timer_stats" };
    static const char *const masked_directories[] = { "acpi", "asound", "scsi" };
    static const char *const read_only[] = { "bus", "fs", "irq", "sys", "sysrq-trigger" };
    static const char *const limits[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time" };
    char path[64];

    int node[COUNT(nodes)];
    for (size_t n = 0; n < COUNT(nodes); n++) {
        snprintf(path, sizeof path, "/dev/%s", nodes[n]);
        set_attributes(node[n] = must(clone_tree(AT_FDCWD, path, 0), path), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0);
    }
    int scratch = file_system("tmpfs", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, scratch_options);
    attach(scratch, AT_FDCWD, "/dev"); /* any place in the old root, which is detached later */
    int root = file_system("tmpfs", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, root_options);
    attach(root, AT_FDCWD, "/");
    show("/usr", root, "usr", BIND, 1);
    for (size_t n = 0; n < 4; n++) symlinkat(links[n][0], root, links[n][1]);
    mkdirat(root, "etc", 0755);
    mkdirat(root, "etc/ssl", 0755);
    for (size_t n = 0; n < COUNT(etc); n++) show(etc[n][0], root, etc[n][0] + 1, BIND, *etc[n][1] == 'd');
    for (size_t n = 4; n < COUNT(links); n++) symlinkat(links[n][0], root, links[n][1]);
    text(root, "etc/passwd", "sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\nroot:x:0:0:root:/:/bin/false\n");
    text(root, "etc/group", "sandbox:x:1000:\nroot:x:0:\n");
    text(root, "etc/hostname", "sandbox\n");
    text(root, "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n");
    text(root, "etc/hosts", "127.0.0.1\tlocalhost sandbox\n");
    text(root, "etc/resolv.conf", "\n");

    mkdirat(root, "proc", 0755);
    int proc = file_system("proc", QUIET, 0);
    attach(proc, root, "proc");
    mkdirat(root, "dev", 0755);
    int dev = file_system("tmpfs", QUIET, dev_options);
    attach(dev, root, "dev");
    for (size_t n = 0; n < COUNT(nodes); n++) {
        mknodat(dev, nodes[n], S_IFREG | 0444, 0);
        attach(node[n], dev, nodes[n]);
        close(node[n]);
    }
    for (size_t n = 0; n < COUNT(dev_links); n++) symlinkat(dev_links[n][0], dev, dev_links[n][1]);
    mkdirat(dev, "shm", 01777);
    mkdirat(dev, "pts", 0755);
    int pts = file_system("devpts", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, pts_options);
    attach(pts, dev, "pts");
    close(pts);
    mkdirat(root, "tmp", 0755);
    mkdirat(root, "home", 0755);
    mkdirat(root, "home/sandbox", 0755);
    for (size_t n = 0; n < COUNT(spaces); n++) {
        mkdirat(scratch, spaces[n].name, spaces[n].mode);
        int space = must(clone_tree(scratch, spaces[n].name, 0), "scratch");
        set_attributes(space, spaces[n].attributes, 0);
        attach(space, root, spaces[n].path);
        close(space);
    }
    mkdirat(root, "var", 0755);
    symlinkat("../tmp", root, "var/tmp");
    mknodat(scratch, "f", S_IFREG, 0);
    mkdirat(scratch, "d", 0);
    for (size_t n = 0; n < COUNT(masked) + COUNT(masked_directories); n++) {
        int file = n < COUNT(masked);
        const char *name = file ? masked[n] : masked_directories[n - COUNT(masked)];
        if (faccessat(proc, name, F_OK, 0)) continue;
        int cover = must(clone_tree(scratch, file ? "f" : "d", 0), "cover");
        set_attributes(cover, BIND | MOUNT_ATTR_NOEXEC, 0);
        attach(cover, proc, name);
        close(cover);
    }
    int user = must(openat(proc, "sys/user", O_PATH | O_DIRECTORY | O_CLOEXEC), "sys/user");
    for (size_t n = 0; n < COUNT(read_only); n++) {
        int tree = clone_tree(proc, read_only[n], 1);
        if (tree < 0) continue;
        set_attributes(tree, MOUNT_ATTR_RDONLY, 1);
        attach(tree, proc, read_only[n]);
        close(tree);
    }
    /* The limits come last, because a detached mount counts as a mount namespace. */
    for (size_t n = 0; n < COUNT(limits); n++) {
        snprintf(path, sizeof path, "max_%s_namespaces", limits[n]);
        int file = must(openat(user, path, O_WRONLY | O_CLOEXEC), path);
        must(write(file, "0", 1), path);
        close(file);
    }
    set_attributes(dev, MOUNT_ATTR_RDONLY, 0);
    set_attributes(root, MOUNT_ATTR_RDONLY, 0);
    close(user);
    close(proc);
    close(dev);
    close(scratch);
    return root;
}

#define FS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)

static void landlock(void) {
    uint64_t writable = 0x7ffe & ~(uint64_t)LANDLOCK_ACCESS_FS_READ_FILE & ~(uint64_t)LANDLOCK_ACCESS_FS_READ_DIR;
    struct { uint64_t fs, net, scoped; } handled = { 0xffff, 3, 3 };
    const struct { const char *path; uint64_t access; } rules[] = { { "/", FS_READ }, { "/", LANDLOCK_ACCESS_FS_EXECUTE },
        { "/proc", FS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE }, { "/dev", FS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | 0x8000 },
        { "/dev/shm", FS_READ | writable }, { "/tmp", FS_READ | writable }, { "/home/sandbox", FS_READ | writable } };
    int ruleset = must(syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0), "landlock");
    for (size_t n = 0; n < COUNT(rules); n++) {
        struct landlock_path_beneath_attr rule = { .allowed_access = rules[n].access };
        rule.parent_fd = must(open(rules[n].path, O_PATH | O_CLOEXEC), rules[n].path);
        must(syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0), rules[n].path);
        close(rule.parent_fd);
    }
    must(syscall(SYS_landlock_restrict_self, ruleset, 0), "landlock");
}

static void become_workload(struct sock_fprog *filter, char **words) {
    static const struct { int what; struct rlimit limit; } limits[] = { { RLIMIT_CORE, { 0, 0 } },
        { RLIMIT_NPROC, { 2048, 2048 } }, { RLIMIT_NOFILE, { 1024, 4096 } }, { RLIMIT_MEMLOCK, { 8 << 20, 8 << 20 } },
        { RLIMIT_SIGPENDING, { 4096, 4096 } }, { RLIMIT_MSGQUEUE, { 0, 0 } }, { RLIMIT_NICE, { 0, 0 } },
        { RLIMIT_RTPRIO, { 0, 0 } } };
    char *environment[] = { "PATH=/usr/bin:/bin", "HOME=/home/sandbox", 0 };
    sigset_t none;
    setsid();
    dup2(must(open("/dev/null", O_RDWR | O_CLOEXEC), "/dev/null"), 0);
    must(chdir("/home/sandbox"), "/home/sandbox");
    landlock();
    umask(022);
    for (size_t n = 0; n < COUNT(limits); n++) must(setrlimit(limits[n].what, &limits[n].limit), "setrlimit");
    must(close_range(3, ~0u, CLOSE_RANGE_CLOEXEC), "close_range");
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, 0);
    must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, filter), "seccomp");
    execve(words[0], words, environment);
    _exit(127);
}

static int child(int go, struct sock_fprog *filter, char **words) {
    char byte;
    int lo = must(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
    struct ifreq up = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
    must(ioctl(lo, SIOCSIFFLAGS, &up), "lo");
    close(lo);
    if (read(go, &byte, 1) != 1) _exit(125);
    must(setresgid(1000, 1000, 1000), "setresgid");
    must(setresuid(1000, 1000, 1000), "setresuid");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    umask(0);
    int root = build_root();
    must(fchdir(root), "fchdir");
    must(syscall(SYS_pivot_root, ".", "."), "pivot_root");
    must(syscall(SYS_umount2, ".", 2 /* MNT_DETACH */), "umount2");
    must(chdir("/"), "chdir");
    must(sethostname("sandbox", 7), "sethostname");
    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0);
    must(syscall(SYS_setgroups, 0, 0), "setgroups");
    for (int capability = 0; prctl(PR_CAPBSET_DROP, capability) == 0; capability++) {}
    must(prctl(PR_SET_SECUREBITS, 0xef), "securebits");
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct nothing[2] = { { 0 } };
    must(syscall(SYS_capset, &header, nothing), "capset");
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    prctl(PR_SET_DUMPABLE, 0);
    pid_t workload = vfork();
    if (workload == 0) become_workload(filter, words);
    must(workload, "vfork");
    close_range(3, ~0u, 0);
    int status;
    while (wait(&status) != workload) {}
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void map_ids(pid_t pid, const char *file, const char *id) {
    char path[64], line[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    int map = must(open(path, O_WRONLY | O_CLOEXEC), path);
    int length = snprintf(line, sizeof line, "1000 %s 1\n", id);
    must(write(map, line, length), path);
    close(map);
}

int main(int count, char **words) {
    static struct sock_filter instructions[4096];
    int go[2], status;
    if (count < 4) {
        dprintf(2, "usage: floor FILTER ID PROGRAM [WORD...]\n");
        return 125;
    }
    int file = must(open(words[1], O_RDONLY | O_CLOEXEC), words[1]);
    long length = must(read(file, instructions, sizeof instructions), words[1]);
    close(file);
    struct sock_fprog filter = { .len = length / sizeof *instructions, .filter = instructions };
    must(pipe2(go, O_CLOEXEC), "pipe");
    struct clone3_arguments arguments = { .exit_signal = SIGCHLD,
        .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP };
    pid_t pid = must(syscall(SYS_clone3, &arguments, sizeof arguments), "clone3");
    if (pid == 0) {
        close(go[1]);
        child(go[0], &filter, words + 3);
    }
    close(go[0]);
    map_ids(pid, "uid_map", words[2]);
    map_ids(pid, "gid_map", words[2]);
    must(write(go[1], "g", 1), "go");
    must(waitpid(pid, &status, 0), "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
