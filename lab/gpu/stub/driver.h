/* The driver of make-believe behind the NVML stub: what the settings file says, and which of it can be seen here. */
#ifndef DRIVER_H
#define DRIVER_H

#include <stdbool.h>
#include <stddef.h>

enum { MAX_DEVICES = 128, MAX_FAILURES = 16, MAX_STEPS = 64, MAX_PROCESSES = 32, MAX_CAPS = 4 };

/* Return values as nvml.h numbers them. */
enum {
	OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
	INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, MISMATCH = 25, UNKNOWN = 999
};

enum sight { ABSENT, FORBIDDEN, VISIBLE };

struct failure { char function[64]; int code; };
struct step { double since; double percent; };
struct process { unsigned pid; unsigned long long bytes; unsigned percent; };

struct device {
	char uuid[80], name[96], bus[32];
	int parent; /* position of the GPU that a MIG instance is a part of; -1: a GPU */
	unsigned minor, major_capability, minor_capability, multiprocessors, cores, clock_mhz, power_mw, temperature;
	unsigned gpu_instance, compute_instance, slices, memory_percent;
	unsigned long long memory, used;
	bool ecc, mig, gpm;
	int failures, steps, processes, caps;
	struct failure failure[MAX_FAILURES];
	struct step step[MAX_STEPS];
	struct process process[MAX_PROCESSES];
	unsigned cap[MAX_CAPS];
};

struct driver {
	char version[80];
	int cuda;
	long epoch;
	char nodes[256]; /* the folder with the devices' nodes; empty: they do not matter */
	int devices, failures;
	struct device device[MAX_DEVICES];
	struct failure failure[MAX_FAILURES];
};

/* The driver as the settings file has it now; NULL: there is none. The caller holds the stub's lock. */
struct driver *driver_now(void);

/* What of the driver this process may open: as the nodes below /dev and the device cgroup have it. */
enum sight sight_of_control(const struct driver *driver);
enum sight sight_of(const struct driver *driver, const struct device *device);

/* The code that `function` is to fail with; OK: none. */
int failure_of(const struct failure *failures, int count, const char *function);

/* Seconds since 1970, busy seconds until then, and percent busy in the period of `seconds` that ends then. */
double now(void);
double busy_until(const struct device *device, double time);
unsigned busy_percent(const struct device *device, double end, double seconds);

#endif
