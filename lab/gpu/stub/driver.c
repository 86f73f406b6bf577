/* Reads the settings file (its lines: lab/gpu/nvml.py), again whenever it has changed. */
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define SETTINGS "/run/nvml-stub/settings"
#define MAJOR 195
#define CONTROL_MINOR 255

static struct driver driver;
static struct stat seen;

static bool yes(const char *value) { return strcmp(value, "yes") == 0; }

static void read_failure(struct failure *failures, int *count, const char *value)
{
	if (*count < MAX_FAILURES && sscanf(value, "%63s %d", failures[*count].function, &failures[*count].code) == 2)
		++*count;
}

static void begin_device(const char *uuid, bool mig)
{
	static int gpu; /* the position of the latest GPU */
	if (driver.devices == MAX_DEVICES)
		return;
	struct device *device = &driver.device[driver.devices];
	memset(device, 0, sizeof *device);
	snprintf(device->uuid, sizeof device->uuid, "%s", uuid);
	if (!mig)
		gpu = driver.devices;
	device->parent = mig ? gpu : -1;
	++driver.devices;
}

static void read_step(struct device *device, const char *value)
{
	struct step step = {0, 0};
	if (device->steps < MAX_STEPS && sscanf(value, "%lf %lf", &step.percent, &step.since) >= 1)
		device->step[device->steps++] = step;
}

static void read_process(struct device *device, const char *value)
{
	struct process *process = &device->process[device->processes];
	if (device->processes < MAX_PROCESSES
	    && sscanf(value, "%u %llu %u", &process->pid, &process->bytes, &process->percent) == 3)
		++device->processes;
}

static void read_list(struct device *device, const char *key, const char *value)
{
	if (strcmp(key, "fail") == 0) {
		read_failure(device->failure, &device->failures, value);
	} else if (strcmp(key, "utilisation") == 0) {
		read_step(device, value);
	} else if (strcmp(key, "process") == 0) {
		read_process(device, value);
	} else if (strcmp(key, "cap") == 0 && device->caps < MAX_CAPS) {
		device->cap[device->caps++] = (unsigned)strtoul(value, NULL, 10);
	} else if (strcmp(key, "capability") == 0) {
		sscanf(value, "%u.%u", &device->major_capability, &device->minor_capability);
	}
}

static void read_device(struct device *device, const char *key, const char *value)
{
	const struct { const char *key; unsigned *target; } numbers[] = {
		{"minor", &device->minor}, {"multiprocessors", &device->multiprocessors}, {"cores", &device->cores},
		{"clock_mhz", &device->clock_mhz}, {"power_mw", &device->power_mw}, {"temperature", &device->temperature},
		{"gpu_instance", &device->gpu_instance}, {"compute_instance", &device->compute_instance},
		{"slices", &device->slices}, {"memory_utilisation", &device->memory_percent},
	};
	const struct { const char *key; bool *target; } flags[] = {
		{"ecc", &device->ecc}, {"mig_mode", &device->mig}, {"gpm", &device->gpm},
	};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i)
		if (strcmp(key, numbers[i].key) == 0)
			*numbers[i].target = (unsigned)strtoul(value, NULL, 10);
	for (size_t i = 0; i < sizeof flags / sizeof *flags; ++i)
		if (strcmp(key, flags[i].key) == 0)
			*flags[i].target = yes(value);
	if (strcmp(key, "name") == 0)
		snprintf(device->name, sizeof device->name, "%s", value);
	else if (strcmp(key, "bus") == 0)
		snprintf(device->bus, sizeof device->bus, "%s", value);
	else if (strcmp(key, "memory") == 0)
		device->memory = strtoull(value, NULL, 10);
	else if (strcmp(key, "used") == 0)
		device->used = strtoull(value, NULL, 10);
	else
		read_list(device, key, value);
}

static void read_line(char *line)
{
	char *key = line + strspn(line, " \t");
	key[strcspn(key, "\r\n")] = 0;
	char *value = key + strcspn(key, " \t");
	if (*value)
		*value++ = 0;
	if (!*key || *key == '#')
		return;
	if (strcmp(key, "gpu") == 0 || strcmp(key, "mig") == 0)
		begin_device(value, *key == 'm');
	else if (driver.devices)
		read_device(&driver.device[driver.devices - 1], key, value);
	else if (strcmp(key, "driver") == 0)
		snprintf(driver.version, sizeof driver.version, "%s", value);
	else if (strcmp(key, "cuda") == 0)
		driver.cuda = atoi(value);
	else if (strcmp(key, "epoch") == 0)
		driver.epoch = atol(value);
	else if (strcmp(key, "nodes") == 0)
		snprintf(driver.nodes, sizeof driver.nodes, "%s", value);
	else if (strcmp(key, "fail") == 0)
		read_failure(driver.failure, &driver.failures, value);
}

struct driver *driver_now(void)
{
	const char *path = getenv("NVML_STUB_SETTINGS");
	FILE *file = fopen(path ? path : SETTINGS, "re");
	struct stat status;
	if (!file)
		return NULL;
	bool same = fstat(fileno(file), &status) == 0 && status.st_ino == seen.st_ino && status.st_dev == seen.st_dev
		&& status.st_size == seen.st_size && status.st_mtim.tv_sec == seen.st_mtim.tv_sec
		&& status.st_mtim.tv_nsec == seen.st_mtim.tv_nsec;
	if (!same) {
		char line[512];
		memset(&driver, 0, sizeof driver);
		while (fgets(line, sizeof line, file))
			read_line(line);
		seen = status;
	}
	fclose(file);
	return &driver;
}

/* No driver answers behind the lab's nodes, so opening one ends with ENXIO; the device cgroup speaks before that. */
static enum sight sight_of_node(const char *name, unsigned minor_wanted, bool any_major)
{
	char path[512];
	struct stat status;
	snprintf(path, sizeof path, "%s/%s", driver.nodes, name);
	if (stat(path, &status) != 0 || !S_ISCHR(status.st_mode) || minor(status.st_rdev) != minor_wanted
	    || (!any_major && major(status.st_rdev) != MAJOR))
		return ABSENT;
	int node = open(path, O_RDWR | O_CLOEXEC);
	if (node >= 0)
		close(node);
	return node < 0 && (errno == EPERM || errno == EACCES) ? FORBIDDEN : VISIBLE;
}

enum sight sight_of_control(const struct driver *from)
{
	return *from->nodes ? sight_of_node("nvidiactl", CONTROL_MINOR, false) : VISIBLE;
}

enum sight sight_of(const struct driver *from, const struct device *device)
{
	char name[64];
	if (!*from->nodes)
		return VISIBLE;
	if (device->parent < 0) {
		snprintf(name, sizeof name, "nvidia%u", device->minor);
		return sight_of_node(name, device->minor, false);
	}
	enum sight worst = sight_of(from, &from->device[device->parent]);
	for (int i = 0; i < device->caps; ++i) {
		snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%u", device->cap[i]);
		enum sight cap = sight_of_node(name, device->cap[i], true);
		worst = cap < worst ? cap : worst;
	}
	return worst;
}

int failure_of(const struct failure *failures, int count, const char *function)
{
	for (int i = 0; i < count; ++i)
		if (strcmp(failures[i].function, "*") == 0 || strcmp(failures[i].function, function) == 0)
			return failures[i].code;
	return OK;
}

double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_REALTIME, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

double busy_until(const struct device *device, double time)
{
	double busy = 0;
	for (int i = 0; i < device->steps; ++i) {
		double begin = device->step[i].since;
		double end = i + 1 < device->steps && device->step[i + 1].since < time ? device->step[i + 1].since : time;
		if (end > begin)
			busy += (end - begin) * device->step[i].percent / 100;
	}
	return busy;
}

unsigned busy_percent(const struct device *device, double end, double seconds)
{
	return (unsigned)((busy_until(device, end) - busy_until(device, end - seconds)) / seconds * 100 + 0.5);
}
