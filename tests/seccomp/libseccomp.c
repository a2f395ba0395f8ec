/*
 * Compiles a list of rules with libseccomp and writes the program, as an oracle for tests/seccomp/programs.rs and a
 * yardstick for benches/seccomp.rs.
 *
 * usage: libseccomp [-b ROUNDS] < rules > program
 *
 * Rules, one a line, numbers in any C notation:
 *     default ACTION
 *     optimize LEVEL
 *     rule ACTION NUMBER [ARGUMENT OPERATOR A B]...
 * ACTION is the value a filter returns; OPERATOR one of the letters of "nlLeGg&" for the operators of seccomp.h in order.
 *
 * With -b the rules are compiled so many times; the nanoseconds of each go to standard error.
 */
#include <errno.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct rule {
	uint32_t action;
	int number;
	unsigned count;
	struct scmp_arg_cmp args[6];
};

static uint32_t fallback = SCMP_ACT_KILL_PROCESS;
static unsigned long optimize = 1;
static struct rule *rules;
static size_t rule_count;

static void die(const char *what, int error)
{
	fprintf(stderr, "libseccomp: %s: %s\n", what, strerror(error < 0 ? -error : error));
	exit(1);
}

static void read_rules(void)
{
	static const char operators[] = "?nlLeGg&";
	char line[1024];

	while (fgets(line, sizeof line, stdin)) {
		char *word = strtok(line, " \n");
		if (!word)
			continue;
		if (!strcmp(word, "default")) {
			fallback = strtoul(strtok(NULL, " \n"), NULL, 0);
		} else if (!strcmp(word, "optimize")) {
			optimize = strtoul(strtok(NULL, " \n"), NULL, 0);
		} else {
			rules = realloc(rules, (rule_count + 1) * sizeof *rules);
			if (!rules)
				die("realloc", errno);
			struct rule *rule = &rules[rule_count++];
			rule->action = strtoul(strtok(NULL, " \n"), NULL, 0);
			rule->number = strtol(strtok(NULL, " \n"), NULL, 0);
			rule->count = 0;
			while ((word = strtok(NULL, " \n"))) {
				struct scmp_arg_cmp *arg = &rule->args[rule->count++];
				arg->arg = strtoul(word, NULL, 0);
				arg->op = strchr(operators, *strtok(NULL, " \n")) - operators;
				arg->datum_a = strtoull(strtok(NULL, " \n"), NULL, 0);
				arg->datum_b = strtoull(strtok(NULL, " \n"), NULL, 0);
			}
		}
	}
}

static scmp_filter_ctx compile(void)
{
	scmp_filter_ctx context = seccomp_init(fallback);
	int error;

	if (!context)
		die("seccomp_init", EINVAL);
	if ((error = seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS)))
		die("SCMP_FLTATR_ACT_BADARCH", error);
	if ((error = seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, optimize)))
		die("SCMP_FLTATR_CTL_OPTIMIZE", error);
	for (size_t at = 0; at < rule_count; at++) {
		error = seccomp_rule_add_exact_array(context, rules[at].action, rules[at].number, rules[at].count, rules[at].args);
		if (error)
			die("seccomp_rule_add_exact_array", error);
	}
	return context;
}

int main(int argc, char **argv)
{
	int rounds = argc == 3 && !strcmp(argv[1], "-b") ? atoi(argv[2]) : 0;

	read_rules();
	FILE *sink = fopen("/dev/null", "w");
	for (int round = 0; round < rounds; round++) {
		struct timespec start, end;
		clock_gettime(CLOCK_MONOTONIC, &start);
		scmp_filter_ctx context = compile();
		/* There is no way to have the program in memory before 2.6; a write to /dev/null is the cheapest there is. */
		seccomp_export_bpf(context, fileno(sink));
		clock_gettime(CLOCK_MONOTONIC, &end);
		seccomp_release(context);
		fprintf(stderr, "%ld\n", (end.tv_sec - start.tv_sec) * 1000000000L + end.tv_nsec - start.tv_nsec);
	}
	int error = seccomp_export_bpf(compile(), STDOUT_FILENO);
	if (error)
		die("seccomp_export_bpf", error);
	return 0;
}
