/*
 * libnvidia-ml.so.1 without a GPU: the functions of NVML that monitoring programs ask for, answered from a settings
 * file. Names, structures and return values are those of NVML's public interface.
 */
#include "driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define SAMPLE_S (1.0 / 6) /* a driver samples about that often, and keeps some seconds of it */
#define MAX_SAMPLES 100
#define MIG_DEVICES 7

struct handle { char uuid[80]; }; /* stays what it is when the settings change */
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char name[32]; };
struct rates { unsigned gpu, memory; };
struct sample { unsigned long long time_us; union { double d; unsigned u; unsigned long long l; } value; };
struct running { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; };
struct process_rates { unsigned pid; unsigned long long time_us; unsigned sm, memory, encoder, decoder; };
struct attributes {
	unsigned multiprocessors, copy, decoder, encoder, jpeg, ofa, gpu_slices, compute_slices;
	unsigned long long memory_mb;
};
struct gpm_sample { double time, busy; };
struct gpm_metric { unsigned id; int code; double value; const char *names[3]; };
struct gpm_query { unsigned version, count; struct gpm_sample *first, *second; struct gpm_metric metric[]; };
struct gpm_support { unsigned version, supported; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle handles[MAX_DEVICES];
static int begun;
static long epoch;
static struct driver *driver;

static void unlock(int *code) { (void)code; pthread_mutex_unlock(&lock); }

/* Whether `function` can answer at all: initialised, by the driver that is loaded now, and not told to fail. */
static int begin(const char *function)
{
	pthread_mutex_lock(&lock);
	if (!(driver = driver_now()))
		return begun ? UNKNOWN : DRIVER_NOT_LOADED;
	int code = failure_of(driver->failure, driver->failures, function);
	return code ? code : begun && epoch == driver->epoch ? OK : UNINITIALIZED;
}

static int begin_with(const char *function, const struct handle *handle, struct device **device)
{
	int code = begin(function);
	if (code)
		return code;
	if (handle < handles || handle >= handles + MAX_DEVICES)
		return INVALID_ARGUMENT;
	*device = NULL;
	for (int i = 0; i < driver->devices; ++i)
		if (strcmp(driver->device[i].uuid, handle->uuid) == 0)
			*device = &driver->device[i];
	if (!*device)
		return GPU_IS_LOST;
	code = failure_of((*device)->failure, (*device)->failures, function);
	if (!code && (*device)->parent >= 0) { /* a GPU that is lost has lost its instances */
		struct device *parent = &driver->device[(*device)->parent];
		code = failure_of(parent->failure, parent->failures, "*");
	}
	return code;
}

#define BEGIN \
	int code __attribute__((cleanup(unlock))) = begin(__func__); \
	if (code) \
		return code
#define BEGIN_WITH(handle) \
	struct device *device = NULL; \
	int code __attribute__((cleanup(unlock))) = begin_with(__func__, handle, &device); \
	if (code) \
		return code
/* A getter of one figure, which MIG instances may lack. */
#define GETTER(function, type, expression) \
	API int function(struct handle *handle, type *value) \
	{ \
		BEGIN_WITH(handle); \
		*value = expression; \
		return OK; \
	} \
	struct handle
#define ONLY_GPU \
	if (device->parent >= 0) \
		return NOT_SUPPORTED

static int give(struct device *device, struct handle **handle)
{
	for (struct handle *one = handles; one < handles + MAX_DEVICES; ++one) {
		if (!*one->uuid)
			memcpy(one->uuid, device->uuid, sizeof one->uuid);
		if (strcmp(one->uuid, device->uuid) == 0) {
			*handle = one;
			return OK;
		}
	}
	return UNKNOWN;
}

static int write_text(char *target, unsigned size, const char *text)
{
	return (size_t)snprintf(target, size, "%s", text) < size ? OK : INSUFFICIENT_SIZE;
}

API int nvmlInitWithFlags(unsigned flags)
{
	(void)flags;
	int code __attribute__((cleanup(unlock))) = begin(__func__);
	if (code && code != UNINITIALIZED)
		return code;
	enum sight control = sight_of_control(driver);
	if (control != VISIBLE) /* a container without the node, and one whose device cgroup has forgotten it */
		return control == ABSENT ? DRIVER_NOT_LOADED : UNKNOWN;
	if (epoch != driver->epoch)
		begun = 0;
	epoch = driver->epoch;
	++begun;
	return OK;
}

API int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

API int nvmlShutdown(void)
{
	int code __attribute__((cleanup(unlock))) = begin(__func__);
	if (!begun)
		return UNINITIALIZED;
	--begun;
	return OK;
}

API const char *nvmlErrorString(int code)
{
	static const char *const words[] = {
		"Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
		"Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
		"Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
		"Corrupted infoROM", "GPU is lost", "GPU requires restart", "The operating system has blocked the request",
		"Driver/library version mismatch",
	};
	return code >= 0 && (size_t)code < sizeof words / sizeof *words ? words[code] : "Unknown Error";
}

API int nvmlSystemGetDriverVersion(char *text, unsigned size) { BEGIN; return write_text(text, size, driver->version); }
API int nvmlSystemGetNVMLVersion(char *text, unsigned size)
{
	BEGIN;
	char version[96];
	snprintf(version, sizeof version, "%d.%s", driver->cuda / 1000, driver->version);
	return write_text(text, size, version);
}
API int nvmlSystemGetCudaDriverVersion(int *version) { BEGIN; *version = driver->cuda; return OK; }
API int nvmlSystemGetCudaDriverVersion_v2(int *version) { BEGIN; *version = driver->cuda; return OK; }

/* GPUs whose node is not there do not exist; those that must not be opened do, and refuse. */
API int nvmlDeviceGetCount_v2(unsigned *count)
{
	BEGIN;
	*count = 0;
	for (int i = 0; i < driver->devices; ++i)
		*count += driver->device[i].parent < 0 && sight_of(driver, &driver->device[i]) != ABSENT;
	return OK;
}

static int open_device(struct device *device, struct handle **handle)
{
	if (sight_of(driver, device) == FORBIDDEN)
		return NO_PERMISSION;
	/* A GPU that has fallen off the bus (all fails) gives no handle; one with a getter that fails does. */
	int code = failure_of(device->failure, device->failures, "nvmlDeviceGetHandle");
	return code ? code : give(device, handle);
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct handle **handle)
{
	BEGIN;
	for (int i = 0; i < driver->devices; ++i) {
		struct device *device = &driver->device[i];
		if (device->parent < 0 && sight_of(driver, device) != ABSENT && index-- == 0)
			return open_device(device, handle);
	}
	return INVALID_ARGUMENT;
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, struct handle **handle)
{
	BEGIN;
	for (int i = 0; i < driver->devices; ++i) {
		struct device *device = &driver->device[i];
		if (strcmp(device->uuid, uuid) == 0 && sight_of(driver, device) != ABSENT)
			return open_device(device, handle);
	}
	return NOT_FOUND;
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, struct handle **handle)
{
	BEGIN;
	for (int i = 0; i < driver->devices; ++i) {
		struct device *device = &driver->device[i];
		if (device->parent < 0 && strcasecmp(device->bus, bus) == 0 && sight_of(driver, device) != ABSENT)
			return open_device(device, handle);
	}
	return NOT_FOUND;
}

API int nvmlDeviceGetIndex(struct handle *handle, unsigned *index)
{
	BEGIN_WITH(handle);
	ONLY_GPU;
	*index = 0;
	for (struct device *one = driver->device; one < device; ++one)
		*index += one->parent < 0 && sight_of(driver, one) != ABSENT;
	return OK;
}

API int nvmlDeviceGetUUID(struct handle *handle, char *text, unsigned size)
{
	BEGIN_WITH(handle);
	return write_text(text, size, device->uuid);
}

API int nvmlDeviceGetName(struct handle *handle, char *text, unsigned size)
{
	BEGIN_WITH(handle);
	return write_text(text, size, device->name);
}

API int nvmlDeviceGetCudaComputeCapability(struct handle *handle, int *major, int *minor)
{
	BEGIN_WITH(handle);
	*major = (int)device->major_capability;
	*minor = (int)device->minor_capability;
	return OK;
}

static int ecc_mode(const struct device *device, unsigned *current, unsigned *pending)
{
	*current = *pending = device->ecc;
	return OK;
}

API int nvmlDeviceGetEccMode(struct handle *handle, unsigned *current, unsigned *pending)
{
	BEGIN_WITH(handle);
	ONLY_GPU;
	return ecc_mode(device, current, pending);
}

API int nvmlDeviceGetPciInfo_v3(struct handle *handle, struct pci *pci)
{
	BEGIN_WITH(handle);
	ONLY_GPU;
	memset(pci, 0, sizeof *pci);
	snprintf(pci->name, sizeof pci->name, "%s", device->bus);
	sscanf(device->bus, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
	snprintf(pci->legacy, sizeof pci->legacy, "%04x:%02x:%02x.0", pci->domain & 0xffff, pci->bus & 0xff,
		 pci->device & 0xff);
	return OK;
}

API int nvmlDeviceGetMemoryInfo(struct handle *handle, struct memory *memory)
{
	BEGIN_WITH(handle);
	*memory = (struct memory){device->memory, device->memory - device->used, device->used};
	return OK;
}

API int nvmlDeviceGetMemoryInfo_v2(struct handle *handle, struct memory_v2 *memory)
{
	BEGIN_WITH(handle);
	*memory = (struct memory_v2){
		memory->version, device->memory, 0, device->memory - device->used, device->used};
	return OK;
}

API int nvmlDeviceGetMaxClockInfo(struct handle *handle, int type, unsigned *mhz)
{
	(void)type;
	BEGIN_WITH(handle);
	ONLY_GPU;
	*mhz = device->clock_mhz;
	return OK;
}

API int nvmlDeviceGetClockInfo(struct handle *handle, int type, unsigned *mhz)
{
	return nvmlDeviceGetMaxClockInfo(handle, type, mhz);
}

API int nvmlDeviceGetTemperature(struct handle *handle, int sensor, unsigned *celsius)
{
	(void)sensor;
	BEGIN_WITH(handle);
	ONLY_GPU;
	*celsius = device->temperature;
	return OK;
}

API int nvmlDeviceGetAttributes_v2(struct handle *handle, struct attributes *attributes)
{
	BEGIN_WITH(handle);
	if (device->parent < 0)
		return NOT_SUPPORTED;
	memset(attributes, 0, sizeof *attributes);
	attributes->multiprocessors = device->multiprocessors;
	attributes->gpu_slices = attributes->compute_slices = device->slices;
	attributes->memory_mb = device->memory >> 20;
	return OK;
}

GETTER(nvmlDeviceGetMinorNumber, unsigned, device->minor);
GETTER(nvmlDeviceGetNumGpuCores, unsigned, device->cores);
GETTER(nvmlDeviceGetPowerUsage, unsigned, device->power_mw);
GETTER(nvmlDeviceIsMigDeviceHandle, unsigned, device->parent >= 0);
GETTER(nvmlDeviceGetAccountingMode, int, 0);
GETTER(nvmlDeviceGetComputeMode, int, 0);

API int nvmlDeviceGetMigMode(struct handle *handle, unsigned *current, unsigned *pending)
{
	BEGIN_WITH(handle);
	ONLY_GPU;
	if (device->major_capability < 8)
		return NOT_SUPPORTED;
	*current = *pending = device->mig;
	return OK;
}

API int nvmlDeviceGetMaxMigDeviceCount(struct handle *handle, unsigned *count)
{
	BEGIN_WITH(handle);
	*count = device->parent < 0 && device->mig ? MIG_DEVICES : 0;
	return OK;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(struct handle *handle, unsigned index, struct handle **instance)
{
	BEGIN_WITH(handle);
	ONLY_GPU;
	for (int i = 0; i < driver->devices; ++i) {
		struct device *one = &driver->device[i];
		if (one->parent == device - driver->device && sight_of(driver, one) == VISIBLE && index-- == 0)
			return give(one, instance);
	}
	return NOT_FOUND;
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct handle *handle, struct handle **gpu)
{
	BEGIN_WITH(handle);
	return device->parent < 0 ? INVALID_ARGUMENT : give(&driver->device[device->parent], gpu);
}

API int nvmlDeviceGetGpuInstanceId(struct handle *handle, unsigned *number)
{
	BEGIN_WITH(handle);
	*number = device->gpu_instance;
	return device->parent < 0 ? NOT_SUPPORTED : OK;
}

API int nvmlDeviceGetComputeInstanceId(struct handle *handle, unsigned *number)
{
	BEGIN_WITH(handle);
	*number = device->compute_instance;
	return device->parent < 0 ? NOT_SUPPORTED : OK;
}

/* From here on: what changes while jobs run. Neither MIG instances nor GPUs in MIG mode have rates and samples. */
#define ONLY_WHOLE \
	if (device->parent >= 0 || device->mig) \
		return NOT_SUPPORTED

API int nvmlDeviceGetUtilizationRates(struct handle *handle, struct rates *rates)
{
	BEGIN_WITH(handle);
	ONLY_WHOLE;
	*rates = (struct rates){busy_percent(device, now(), SAMPLE_S), device->memory_percent};
	return OK;
}

API int nvmlDeviceGetSamples(
	struct handle *handle, int type, unsigned long long since_us, int *value_type, unsigned *count,
	struct sample *samples)
{
	BEGIN_WITH(handle);
	ONLY_WHOLE;
	if (type != 1) /* NVML_GPU_UTILIZATION_SAMPLES */
		return NOT_SUPPORTED;
	unsigned long long last = (unsigned long long)(now() / SAMPLE_S), first = last - MAX_SAMPLES + 1;
	while (first <= last && (unsigned long long)((double)first * SAMPLE_S * 1e6) <= since_us)
		++first;
	if (first > last)
		return NOT_FOUND;
	*value_type = 1; /* unsigned int */
	if (samples && *count < last - first + 1)
		first = last - *count + 1;
	*count = (unsigned)(last - first + 1);
	for (unsigned i = 0; samples && i < *count; ++i) {
		double end = (double)(first + i) * SAMPLE_S;
		samples[i] = (struct sample){(unsigned long long)(end * 1e6), {.l = 0}};
		samples[i].value.u = busy_percent(device, end, SAMPLE_S);
	}
	return OK;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(struct handle *handle, unsigned *count, struct running *processes)
{
	BEGIN_WITH(handle);
	unsigned room = *count;
	*count = (unsigned)device->processes;
	if (room < *count || (*count && !processes))
		return INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < *count; ++i) {
		unsigned none = 0xffffffff;
		bool mig = device->parent >= 0;
		processes[i] = (struct running){device->process[i].pid, device->process[i].bytes,
						mig ? device->gpu_instance : none, mig ? device->compute_instance : none};
	}
	return OK;
}

API int nvmlDeviceGetGraphicsRunningProcesses_v3(struct handle *handle, unsigned *count, struct running *processes)
{
	(void)processes;
	BEGIN_WITH(handle);
	*count = 0;
	return OK;
}

API int nvmlDeviceGetProcessUtilization(
	struct handle *handle, struct process_rates *rates, unsigned *count, unsigned long long since_us)
{
	BEGIN_WITH(handle);
	ONLY_WHOLE;
	unsigned room = *count;
	unsigned long long time_us = (unsigned long long)((double)(unsigned long long)(now() / SAMPLE_S) * SAMPLE_S * 1e6);
	*count = (unsigned)device->processes;
	if (!*count)
		return OK; /* as drivers do: success, and nothing */
	if (time_us <= since_us)
		return NOT_FOUND;
	if (!rates || room < *count)
		return INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < *count; ++i)
		rates[i] = (struct process_rates){device->process[i].pid, time_us, device->process[i].percent, 0, 0, 0};
	return OK;
}

API int nvmlGpmQueryDeviceSupport(struct handle *handle, struct gpm_support *support)
{
	BEGIN_WITH(handle);
	support->supported = device->gpm;
	return OK;
}

API int nvmlGpmSampleAlloc(struct gpm_sample **sample)
{
	BEGIN;
	*sample = calloc(1, sizeof **sample);
	return *sample ? OK : UNKNOWN;
}

API int nvmlGpmSampleFree(struct gpm_sample *sample)
{
	free(sample);
	return OK;
}

API int nvmlGpmSampleGet(struct handle *handle, struct gpm_sample *sample)
{
	BEGIN_WITH(handle);
	if (!device->gpm || device->parent >= 0)
		return NOT_SUPPORTED;
	sample->time = now();
	sample->busy = busy_until(device, sample->time);
	return OK;
}

API int nvmlGpmMigSampleGet(struct handle *handle, unsigned gpu_instance, struct gpm_sample *sample)
{
	BEGIN_WITH(handle);
	if (!device->gpm || device->parent >= 0)
		return NOT_SUPPORTED;
	for (int i = 0; i < driver->devices; ++i) {
		struct device *one = &driver->device[i];
		if (one->parent != device - driver->device || one->gpu_instance != gpu_instance)
			continue;
		sample->time = now();
		sample->busy = busy_until(one, sample->time);
		return OK;
	}
	return NOT_FOUND;
}

API int nvmlGpmMetricsGet(struct gpm_query *query)
{
	BEGIN;
	if (query->version != 1)
		return MISMATCH;
	double seconds = query->second->time - query->first->time;
	for (unsigned i = 0; i < query->count; ++i) {
		struct gpm_metric *metric = &query->metric[i];
		metric->code = metric->id == 1 || metric->id == 2 ? OK : NOT_SUPPORTED; /* graphics and SM utilisation */
		metric->value = seconds > 0 ? (query->second->busy - query->first->busy) / seconds * 100 : 0;
	}
	return OK;
}
