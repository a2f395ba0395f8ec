/*
 * Tells what the filters that were on this process when it started do with a table of system calls, for
 * tests/seccomp/runc.rs.
 *
 * usage: probes decide    what the filters decide; no call is made
 *        probes make      what becomes of each call when it is made
 *
 * Prints `NAME=allowed`, `NAME=ERRNO` (or `NAME=returned`, when made) or `NAME=signal N`.
 *
 * To decide, each probe is made in a child that puts a filter of its own on top: one that hands every call to a listener,
 * which answers with an error number nobody else uses and never lets a call continue. The kernel takes the strictest answer
 * of all filters, and a listener is milder than an error: a call that the filters below refuse fails with their error, one
 * that they allow with ours. So what is compared are decisions of filters, not of capabilities, mounts or the kernel's
 * configuration, and even reboot(2) can be asked about.
 *
 * The arguments are such that calls which are made do nothing: no descriptor, no pointer and no process is a real one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BAD ((uint64_t)-1)
/* An address that is never mapped. */
#define NOWHERE ((uint64_t)8)
#define HIGH(low) ((uint64_t)1 << 32 | (low))

/* Which door into the kernel: the native one, or the 32-bit one. */
enum door { NATIVE, INT80 };

struct probe {
	const char *name;
	enum door door;
	uint64_t number;
	uint64_t args[6];
};

#define P(name, number, ...) { name, NATIVE, number, { __VA_ARGS__ } }

static const struct probe table[] = {
	P("unshare nothing", 272, 0),
	P("unshare NEWUSER", 272, 0x10000000),
	P("unshare NEWNS", 272, 0x00020000),
	P("unshare NEWPID", 272, 0x20000000),
	P("unshare NEWNET", 272, 0x40000000),
	P("unshare NEWIPC", 272, 0x08000000),
	P("unshare NEWUTS", 272, 0x04000000),
	P("unshare NEWCGROUP", 272, 0x02000000),
	P("unshare NEWTIME", 272, 0x00000080),
	/* CLONE_SIGHAND without CLONE_VM: the kernel refuses these with EINVAL, whatever else is set. */
	P("clone plain", 56, 0x00000800),
	P("clone NEWUSER", 56, 0x10000800),
	P("clone NEWNS", 56, 0x00020800),
	P("clone NEWPID", 56, 0x20000800),
	P("clone NEWNET", 56, 0x40000800),
	P("clone NEWIPC", 56, 0x08000800),
	P("clone NEWUTS", 56, 0x04000800),
	P("clone NEWCGROUP", 56, 0x02000800),
	P("clone NEWUSER high", 56, HIGH(0x10000800)),
	P("clone high alone", 56, HIGH(0x00000800)),
	P("clone3", 435, NOWHERE, 88),
	P("clone3 too small", 435, 0, 0),
	P("setns", 308, BAD, 0),
	P("setns NEWUSER", 308, BAD, 0x10000000),
	P("mount", 165, NOWHERE, NOWHERE, NOWHERE, 0, 0),
	P("mount remount", 165, 0, NOWHERE, 0, 32 | 4096, 0),
	P("umount2", 166, NOWHERE, 0),
	P("pivot_root", 155, NOWHERE, NOWHERE),
	P("chroot", 161, NOWHERE),
	P("open_tree", 428, BAD, NOWHERE, BAD),
	P("move_mount", 429, BAD, NOWHERE, BAD, NOWHERE, BAD),
	P("fsopen", 430, NOWHERE, BAD),
	P("fsconfig", 431, BAD, BAD, 0, 0, 0),
	P("fsmount", 432, BAD, BAD, BAD),
	P("fspick", 433, BAD, NOWHERE, BAD),
	P("mount_setattr", 442, BAD, NOWHERE, BAD, NOWHERE, 1),
	P("ptrace TRACEME without end", 101, 0x9999, BAD, 0, 0),
	P("ptrace ATTACH", 101, 16, BAD, 0, 0),
	P("process_vm_readv", 310, BAD, NOWHERE, BAD, NOWHERE, BAD, BAD),
	P("process_vm_writev", 311, BAD, NOWHERE, BAD, NOWHERE, BAD, BAD),
	P("kcmp", 312, BAD, BAD, 99, 0, 0),
	P("pidfd_getfd", 438, BAD, BAD, BAD),
	P("process_madvise", 440, BAD, NOWHERE, BAD, BAD, BAD),
	P("process_mrelease", 448, BAD, BAD),
	P("personality 0", 135, 0),
	P("personality asking", 135, 0xffffffff),
	P("personality asking, signed", 135, BAD),
	P("personality PER_LINUX32", 135, 8),
	P("personality UNAME26", 135, 0x20000),
	P("personality UNAME26 LINUX32", 135, 0x20008),
	P("personality ADDR_NO_RANDOMIZE", 135, 0x40000),
	P("personality READ_IMPLIES_EXEC", 135, 0x400000),
	P("personality MMAP_PAGE_ZERO", 135, 0x100000),
	P("personality 0 high", 135, HIGH(0)),
	/* No family has type 77: EINVAL or EAFNOSUPPORT from the kernel. */
	P("socket UNIX", 41, 1, 77, 0),
	P("socket INET", 41, 2, 77, 0),
	P("socket INET6", 41, 10, 77, 0),
	P("socket NETLINK", 41, 16, 77, 0),
	P("socket NETLINK audit", 41, 16, 77, 9),
	P("socket PACKET", 41, 17, 77, 0),
	P("socket RDS", 41, 21, 77, 0),
	P("socket CAN", 41, 29, 77, 0),
	P("socket TIPC", 41, 30, 77, 0),
	P("socket BLUETOOTH", 41, 31, 77, 0),
	P("socket ALG", 41, 38, 77, 0),
	P("socket VSOCK", 41, 40, 77, 0),
	P("socket XDP", 41, 44, 77, 0),
	P("socketpair UNIX", 53, 1, 77, 0, NOWHERE),
	P("io_uring_setup", 425, 0, 0),
	P("io_uring_enter", 426, BAD, 0, 0, 0, 0, 0),
	P("io_uring_register", 427, BAD, BAD, 0, 0),
	P("bpf", 321, 999, NOWHERE, 0),
	P("perf_event_open", 298, NOWHERE, 0, BAD, BAD, BAD),
	P("keyctl", 250, 999, 0, 0, 0, 0),
	P("add_key", 248, NOWHERE, NOWHERE, 0, 0, 0),
	P("request_key", 249, NOWHERE, NOWHERE, 0, 0),
	P("userfaultfd", 323, 0xff00),
	P("fanotify_init", 300, BAD, BAD),
	P("quotactl", 179, BAD, NOWHERE, 0, 0),
	P("quotactl_fd", 443, BAD, BAD, 0, 0),
	P("reboot", 169, 0, 0, 0, 0),
	P("swapon", 167, NOWHERE, BAD),
	P("swapoff", 168, NOWHERE),
	P("settimeofday", 164, NOWHERE, NOWHERE),
	P("clock_settime", 227, 99, NOWHERE),
	P("clock_adjtime", 305, 99, NOWHERE),
	P("adjtimex", 159, NOWHERE),
	P("init_module", 175, NOWHERE, 0, NOWHERE),
	P("finit_module", 313, BAD, NOWHERE, BAD),
	P("delete_module", 176, NOWHERE, 0),
	P("create_module", 174, NOWHERE, 0),
	P("query_module", 178, NOWHERE, 0, 0, 0, 0),
	P("get_kernel_syms", 177, NOWHERE),
	P("kexec_load", 246, 0, BAD, 0, BAD),
	P("kexec_file_load", 320, BAD, BAD, 0, 0, BAD),
	P("open_by_handle_at", 304, BAD, NOWHERE, 0),
	P("name_to_handle_at", 303, BAD, NOWHERE, NOWHERE, NOWHERE, BAD),
	P("syslog", 103, 99, 0, 0),
	P("acct", 163, NOWHERE),
	P("iopl", 172, 99),
	P("ioperm", 173, BAD, 1, 0),
	P("modify_ldt", 154, 99, 0, 0),
	P("uselib", 134, NOWHERE),
	P("ustat", 136, BAD, NOWHERE),
	P("sysfs", 139, 99, 0, 0),
	P("_sysctl", 156, NOWHERE),
	P("get_mempolicy", 239, NOWHERE, 0, 0, 0, BAD),
	P("mbind", 237, 1, 1, 99, 0, 0, BAD),
	P("set_mempolicy", 238, 99, 0, 0),
	P("move_pages", 279, BAD, 1, 0, 0, 0, BAD),
	P("migrate_pages", 256, BAD, BAD, 0, 0),
	P("nfsservctl", 180, 0, 0, 0),
	P("lookup_dcookie", 212, 0, NOWHERE, 0),
	P("vhangup", 153),
	P("vmsplice", 278, BAD, NOWHERE, BAD, BAD),
	P("splice", 275, BAD, 0, BAD, 0, 1, BAD),
	P("sethostname", 170, NOWHERE, BAD),
	P("setdomainname", 171, NOWHERE, BAD),
	P("ioctl TIOCSTI", 16, BAD, 0x5412, 0),
	P("ioctl TIOCSTI high", 16, BAD, HIGH(0x5412), 0),
	P("ioctl TIOCLINUX", 16, BAD, 0x541c, 0),
	P("seccomp", 317, 99, 0, 0),
	P("landlock_create_ruleset", 444, NOWHERE, 1, 0),
	P("memfd_secret", 447, BAD),
	P("futex_waitv", 449, NOWHERE, 0, BAD, 0, 0),
	P("set_mempolicy_home_node", 450, 1, 1, 0, BAD),
	P("cachestat", 451, BAD, NOWHERE, NOWHERE, BAD),
	P("openat2", 437, BAD, NOWHERE, NOWHERE, 0),
	P("close_range", 436, BAD, 0, BAD),
	P("unknown 470", 470, 0),
	P("unknown 511", 511, 0),
	P("unknown 900", 900, 0),
	P("unknown 100000", 100000, 0),
	P("unknown negative", 0x80000000, 0),
	P("x32 getpid", 0x40000000 | 39, 0),
	P("x32 ptrace", 0x40000000 | 521, 99, BAD),
	{ "int 0x80 getpid", INT80, 20, { 0 } },
	{ "int 0x80 mount", INT80, 21, { 0 } },
	{ "int 0x80 socketcall", INT80, 102, { 99 } },
	{ "int 0x80 unshare", INT80, 310, { 0x10000000 } },
	{ "int 0x80 vm86", INT80, 166, { 99 } },
	{ "int 0x80 vm86old", INT80, 113, { 0 } },
};

#define NAMED (sizeof table / sizeof *table)
/* After the table: every number, without arguments; only to decide. */
#define NUMBERS 620

/* The listener's answer; no call and no filter has it. */
#define OURS 4000
/* exit_group(2) with this status is the one call that the probe's own filter lets through. */
#define LAST 0x5afe

struct shared {
	volatile unsigned next;
	volatile int listener;
	volatile int done;
	long results[NAMED + NUMBERS];
} *shared;

static long enter(const struct probe *probe)
{
	if (probe->door == INT80) {
		long result = probe->number;
		__asm__ volatile("int $0x80"
				 : "+a"(result)
				 : "b"(probe->args[0]), "c"(probe->args[1]), "d"(probe->args[2])
				 : "memory", "r8", "r9", "r10", "r11");
		return (int)result;
	}
	register long r10 __asm__("r10") = probe->args[3];
	register long r8 __asm__("r8") = probe->args[4];
	register long r9 __asm__("r9") = probe->args[5];
	long result = probe->number;
	__asm__ volatile("syscall"
			 : "+a"(result)
			 : "D"(probe->args[0]), "S"(probe->args[1]), "d"(probe->args[2]), "r"(r10), "r"(r8), "r"(r9)
			 : "memory", "rcx", "r11");
	return result;
}

static void probe_at(unsigned at, struct probe *probe)
{
	static char name[32];
	if (at < NAMED) {
		*probe = table[at];
		return;
	}
	*probe = (struct probe){ .name = name, .number = at - NAMED };
	/* The kernel's own trampolines make these two, uretprobe and uprobe, past every filter. */
	if (probe->number == 335 || probe->number == 336)
		probe->number = 334;
	snprintf(name, sizeof name, "number %u", at - (unsigned)NAMED);
}

static void leave(int status)
{
	syscall(SYS_exit_group, status);
	__builtin_trap();
}

/* Hands every call to a listener, whose descriptor is shared with the parent. */
static void listen_to_all(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 2),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, LAST, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };
	int fd = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
			 ? -1
			 : (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	shared->listener = fd < 0 ? -errno : fd;
	if (fd < 0)
		leave(1);
}

static void child(int decide, unsigned last)
{
	struct probe probe;
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	if (decide)
		listen_to_all();
	/* The one whose turn it is may be this process's last: the parent goes on with the next one. */
	while (shared->next < last) {
		unsigned at = shared->next;
		probe_at(at, &probe);
		shared->results[at] = enter(&probe);
		shared->next = at + 1;
		if (!decide)
			break;
	}
	shared->done = 1;
	leave(LAST);
}

/* Answers until the child is gone. */
static void answer(int listener)
{
	for (;;) {
		struct pollfd ready = { .fd = listener, .events = POLLIN };
		struct seccomp_notif call;
		struct seccomp_notif_resp response;

		if (poll(&ready, 1, -1) < 0 || !(ready.revents & POLLIN))
			return;
		memset(&call, 0, sizeof call);
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
			continue;
		memset(&response, 0, sizeof response);
		response.id = call.id;
		response.error = -OURS;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
	}
}

static void tell(int decide, unsigned at, int status)
{
	struct probe probe;
	long result = shared->results[at];

	probe_at(at, &probe);
	if (WIFSIGNALED(status))
		printf("%s=signal %d\n", probe.name, WTERMSIG(status));
	else if (decide && result == -OURS)
		printf("%s=allowed\n", probe.name);
	else if (result < 0 && result > -4096)
		printf("%s=%s\n", probe.name, strerrorname_np(-result) ?: "?");
	else
		printf("%s=returned\n", probe.name);
}

int main(int argc, char **argv)
{
	int decide = argc == 2 && !strcmp(argv[1], "decide");
	unsigned last = decide ? NAMED + NUMBERS : NAMED;

	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 2;
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	while (shared->next < last) {
		unsigned first = shared->next;
		int status;
		shared->listener = shared->done = 0;
		/* The descriptors are shared, and with them the listener. */
		int pid = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
		if (pid < 0)
			return 3;
		if (!pid)
			child(decide, last);
		if (decide) {
			while (!shared->listener)
				sched_yield();
			if (shared->listener < 0) {
				fprintf(stderr, "no listener: %s\n", strerror(-shared->listener));
				return 4;
			}
			answer(shared->listener);
			close(shared->listener);
		}
		waitpid(pid, &status, __WALL);
		for (unsigned at = first; at < shared->next; at++)
			tell(decide, at, 0);
		if (!shared->done) {
			if (!WIFSIGNALED(status))
				return 5;
			tell(decide, shared->next++, status);
		}
	}
	return 0;
}
