/* The functions of NVML. None has a state or a rule: each sends its name and its arguments to the socket that
 * NVML_STUB_SOCKET names, and writes what comes back where nvml.h says. See nvml_stub.py. */

#include "abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_NUMBERS 64

typedef unsigned long long number;

struct answer {
    nvmlReturn_t code;
    char text[NAME_BUFFER];
    number n[MAX_NUMBERS];
    unsigned count;
};

static FILE *dial(void) {
    const char *path = getenv("NVML_STUB_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || strlen(path) >= sizeof address.sun_path) return NULL;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return NULL;
    if (!connect(fd, (struct sockaddr *)&address, sizeof address)) return fdopen(fd, "r+");
    close(fd);
    return NULL;
}

/* Sends `FUNCTION\tTEXT\tNUMBER NUMBER…` and reads `CODE\tTEXT\tNUMBER NUMBER…`. Nobody there: no kernel driver. */
static struct answer ask(const char *function, const char *text, unsigned count, const number *numbers) {
    struct answer a = {.code = DRIVER_NOT_LOADED};
    FILE *peer = dial();
    if (!peer) return a;
    fprintf(peer, "%s\t%s\t", function, text);
    for (unsigned i = 0; i < count; i++) fprintf(peer, "%llu ", numbers[i]);
    fputc('\n', peer);
    fflush(peer);
    if (fscanf(peer, "%d%*1[\t]", &a.code) == 1) {
        if (fscanf(peer, "%95[^\t\n]", a.text) == 1) a.text[NAME_BUFFER - 1] = 0;
        while (a.count < MAX_NUMBERS && fscanf(peer, "%llu", &a.n[a.count]) == 1) a.count++;
    }
    fclose(peer);
    return a;
}

#define ASK_TEXT(text, ...) \
    ask(__func__, text, sizeof((number[]){__VA_ARGS__}) / sizeof(number), (const number[]){__VA_ARGS__})
#define ASK(...) ASK_TEXT("", __VA_ARGS__)

static nvmlReturn_t copy_text(const struct answer *a, char *to, unsigned size) {
    if (a->code) return a->code;
    if (strlen(a->text) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, a->text);
    return SUCCESS;
}

#define TEXT_OF_LIBRARY(function)                             \
    EXPORT nvmlReturn_t function(char *text, unsigned size) { \
        struct answer a = ASK(size);                          \
        return copy_text(&a, text, size);                     \
    }
#define TEXT(function)                                                             \
    EXPORT nvmlReturn_t function(nvmlDevice_t handle, char *text, unsigned size) { \
        struct answer a = ASK(handle, size);                                       \
        return copy_text(&a, text, size);                                          \
    }
/* As many results as the name says, each through a pointer of its own. */
#define RETURN_ONE(first)              \
    if (!a.code) *first = a.n[0]; \
    return a.code;
#define ONE(function, handle_type, type)                                   \
    EXPORT nvmlReturn_t function(handle_type handle, type *result) { \
        struct answer a = ASK(handle);                               \
        RETURN_ONE(result)                                           \
    }
#define ONE_BY_ID(function, handle_type, type)                                          \
    EXPORT nvmlReturn_t function(handle_type handle, unsigned id, type *result) { \
        struct answer a = ASK(handle, id);                                        \
        RETURN_ONE(result)                                                        \
    }
#define TWO(function, type)                                                       \
    EXPORT nvmlReturn_t function(nvmlDevice_t handle, type *first, type *second) { \
        struct answer a = ASK(handle);                                            \
        if (!a.code) *first = a.n[0], *second = a.n[1];                           \
        return a.code;                                                            \
    }
#define NONE(function, handle_type)                    \
    EXPORT nvmlReturn_t function(handle_type handle) { \
        return ASK(handle).code;                       \
    }
#define NONE_WITH(function, type)                                         \
    EXPORT nvmlReturn_t function(nvmlDevice_t handle, type value) { \
        return ASK(handle, value).code;                             \
    }
#define HANDLES(function, handle_type, type)                                                    \
    EXPORT nvmlReturn_t function(handle_type handle, unsigned id, type *found, unsigned *count) { \
        struct answer a = ASK(handle, id);                                                      \
        for (unsigned i = 0; i < a.count; i++) found[i] = a.n[i];                               \
        if (!a.code) *count = a.count;                                                          \
        return a.code;                                                                          \
    }
#define FILL(...)              \
    if (!a.code) __VA_ARGS__; \
    return a.code;

/* The library, and how GPUs are found. */

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) { return ASK(flags).code; }
EXPORT nvmlReturn_t nvmlShutdown(void) { return ask(__func__, "", 0, NULL).code; }
TEXT_OF_LIBRARY(nvmlSystemGetDriverVersion)

#define ONE_OF_LIBRARY(function, type)               \
    EXPORT nvmlReturn_t function(type *result) {     \
        struct answer a = ask(__func__, "", 0, NULL); \
        RETURN_ONE(result)                           \
    }
ONE_OF_LIBRARY(nvmlSystemGetCudaDriverVersion_v2, int)
ONE_OF_LIBRARY(nvmlDeviceGetCount_v2, unsigned)
ONE_OF_LIBRARY(nvmlEventSetCreate, nvmlEventSet_t)
ONE(nvmlDeviceGetHandleByIndex_v2, unsigned, nvmlDevice_t)

#define HANDLE_BY_TEXT(function)                                            \
    EXPORT nvmlReturn_t function(const char *text, nvmlDevice_t *result) { \
        struct answer a = ask(__func__, text, 0, NULL);                     \
        RETURN_ONE(result)                                                  \
    }
HANDLE_BY_TEXT(nvmlDeviceGetHandleByUUID)
HANDLE_BY_TEXT(nvmlDeviceGetHandleByPciBusId_v2)

/* Event sets. */

NONE(nvmlEventSetFree, nvmlEventSet_t)

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, number types, nvmlEventSet_t set) {
    return ASK(device, types, set).code;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    struct answer a = ASK(set, timeout_ms);
    FILL(*data = (nvmlEventData_t){.device = a.n[0], .eventType = a.n[1], .eventData = a.n[2],
                                   .gpuInstanceId = a.n[3], .computeInstanceId = a.n[4]})
}

/* What a GPU is, and its modes. */

TEXT(nvmlDeviceGetUUID)
TEXT(nvmlDeviceGetName)
ONE(nvmlDeviceGetMinorNumber, nvmlDevice_t, unsigned)
ONE(nvmlDeviceGetModuleId, nvmlDevice_t, unsigned)
ONE(nvmlDeviceGetBrand, nvmlDevice_t, int)
ONE(nvmlDeviceGetArchitecture, nvmlDevice_t, unsigned)
ONE(nvmlDeviceGetVirtualizationMode, nvmlDevice_t, int)
ONE(nvmlDeviceGetComputeMode, nvmlDevice_t, int)
ONE(nvmlDeviceGetPersistenceMode, nvmlDevice_t, int)
ONE(nvmlDeviceGetSupportedEventTypes, nvmlDevice_t, number)
NONE_WITH(nvmlDeviceSetComputeMode, int)
NONE_WITH(nvmlDeviceSetPersistenceMode, int)
TWO(nvmlDeviceGetCudaComputeCapability, int)

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info) {
    struct answer a = ASK(device);
    if (a.code) return a.code;
    *info = (nvmlPciInfo_t){.domain = a.n[0], .bus = a.n[1], .device = a.n[2],
                            .pciDeviceId = a.n[3], .pciSubSystemId = a.n[4]};
    strcpy(info->busIdLegacy, "legacy");
    return copy_text(&a, info->busId, sizeof info->busId);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    struct answer a = ASK(device);
    FILL(*memory = (nvmlMemory_t){.total = a.n[0], .free = a.n[1], .used = a.n[2]})
}

#define REQUIRE_VERSION(pointer, number) \
    if ((pointer)->version != VERSION_OF(*(pointer), number)) return ARGUMENT_VERSION_MISMATCH;

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    REQUIRE_VERSION(memory, 2)
    struct answer a = ASK(device);
    FILL(*memory = (nvmlMemory_v2_t){.version = memory->version, .total = a.n[0], .free = a.n[1], .used = a.n[2],
                                     .reserved = a.n[3]})
}

EXPORT nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_t *mode) {
    REQUIRE_VERSION(mode, 1)
    struct answer a = ASK(device);
    FILL(mode->value = a.n[0])
}

/* Processes and health. */

#define PROCESSES(function)                                                                               \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *found) {        \
        struct answer a = ASK(device);                                                                    \
        const unsigned room = *count, all = a.count / 4;                                                  \
        if (a.code) return a.code;                                                                        \
        *count = all;                                                                                     \
        if (all > room) return INSUFFICIENT_SIZE;                                                         \
        for (unsigned i = 0; i < all; i++)                                                                \
            found[i] = (nvmlProcessInfo_t){.pid = a.n[4 * i], .usedGpuMemory = a.n[4 * i + 1],            \
                                           .gpuInstanceId = a.n[4 * i + 2], .computeInstanceId = a.n[4 * i + 3]}; \
        return SUCCESS;                                                                                   \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int kind, int counter, number *errors) {
    struct answer a = ASK(device, kind, counter);
    RETURN_ONE(errors)
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *correctable, unsigned *uncorrectable,
                                              unsigned *pending, unsigned *failed) {
    struct answer a = ASK(device);
    if (!a.code) *correctable = a.n[0], *uncorrectable = a.n[1], *pending = a.n[2], *failed = a.n[3];
    return a.code;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    struct answer a = ASK(device, count, values->fieldId, values->scopeId);
    if (a.code) return a.code;
    values->nvmlReturn = a.n[0];
    values->valueType = VALUE_UNSIGNED_INT;
    values->value.uiVal = a.n[1];
    return SUCCESS;
}

/* MIG mode, MIG devices and GPU instances. */

TWO(nvmlDeviceGetMigMode, unsigned)
ONE(nvmlDeviceGetMaxMigDeviceCount, nvmlDevice_t, unsigned)
ONE_BY_ID(nvmlDeviceSetMigMode, nvmlDevice_t, nvmlReturn_t)
ONE_BY_ID(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDevice_t, nvmlDevice_t)
ONE(nvmlDeviceGetGpuInstanceId, nvmlDevice_t, unsigned)
ONE(nvmlDeviceGetComputeInstanceId, nvmlDevice_t, unsigned)
ONE_BY_ID(nvmlDeviceCreateGpuInstance, nvmlDevice_t, nvmlGpuInstance_t)
ONE_BY_ID(nvmlDeviceGetGpuInstanceById, nvmlDevice_t, nvmlGpuInstance_t)
HANDLES(nvmlDeviceGetGpuInstances, nvmlDevice_t, nvmlGpuInstance_t)
NONE(nvmlGpuInstanceDestroy, nvmlGpuInstance_t)

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t mig, nvmlDeviceAttributes_t *found) {
    struct answer a = ASK(mig);
    FILL(*found = (nvmlDeviceAttributes_t){
             .multiprocessorCount = a.n[0], .sharedCopyEngineCount = a.n[1], .sharedDecoderCount = a.n[2],
             .sharedEncoderCount = a.n[3], .sharedJpegCount = a.n[4], .sharedOfaCount = a.n[5],
             .gpuInstanceSliceCount = a.n[6], .computeInstanceSliceCount = a.n[7], .memorySizeMB = a.n[8]})
}

#define GPU_PROFILE                                                                                          \
    .id = a.n[0], .sliceCount = a.n[1], .instanceCount = a.n[2], .multiprocessorCount = a.n[3],              \
    .copyEngineCount = a.n[4], .decoderCount = a.n[5], .encoderCount = a.n[6], .jpegCount = a.n[7],          \
    .ofaCount = a.n[8], .memorySizeMB = a.n[9], .isP2pSupported = a.n[10]
#define COMPUTE_PROFILE                                                                                      \
    .id = a.n[0], .sliceCount = a.n[1], .instanceCount = a.n[2], .multiprocessorCount = a.n[3],              \
    .sharedCopyEngineCount = a.n[4], .sharedDecoderCount = a.n[5], .sharedEncoderCount = a.n[6],             \
    .sharedJpegCount = a.n[7], .sharedOfaCount = a.n[8]

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned kind,
                                                        nvmlGpuInstanceProfileInfo_t *info) {
    struct answer a = ASK(device, kind);
    FILL(*info = (nvmlGpuInstanceProfileInfo_t){GPU_PROFILE})
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned kind,
                                                         nvmlGpuInstanceProfileInfo_v2_t *info) {
    REQUIRE_VERSION(info, 2)
    struct answer a = ASK(device, kind);
    if (!a.code) *info = (nvmlGpuInstanceProfileInfo_v2_t){.version = info->version, GPU_PROFILE};
    return copy_text(&a, info->name, sizeof info->name);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned id,
                                                                  nvmlPlacement_t *found, unsigned *count) {
    struct answer a = ASK(device, id);
    if (!a.code) *count = a.count / 2;
    for (unsigned i = 0; found && i < a.count / 2; i++)
        found[i] = (nvmlPlacement_t){.start = a.n[2 * i], .size = a.n[2 * i + 1]};
    return a.code;
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned id,
                                                             const nvmlPlacement_t *at, nvmlGpuInstance_t *made) {
    struct answer a = ASK(device, id, at->start, at->size);
    RETURN_ONE(made)
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    struct answer a = ASK(instance);
    FILL(*info = (nvmlGpuInstanceInfo_t){.device = a.n[0], .id = a.n[1], .profileId = a.n[2],
                                         .placement = {.start = a.n[3], .size = a.n[4]}})
}

/* Compute instances. */

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned kind,
                                                                 unsigned engines,
                                                                 nvmlComputeInstanceProfileInfo_t *info) {
    struct answer a = ASK(instance, kind, engines);
    FILL(*info = (nvmlComputeInstanceProfileInfo_t){COMPUTE_PROFILE})
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned kind,
                                                                  unsigned engines,
                                                                  nvmlComputeInstanceProfileInfo_v2_t *info) {
    REQUIRE_VERSION(info, 2)
    struct answer a = ASK(instance, kind, engines);
    if (!a.code) *info = (nvmlComputeInstanceProfileInfo_v2_t){.version = info->version, COMPUTE_PROFILE};
    return copy_text(&a, info->name, sizeof info->name);
}

ONE_BY_ID(nvmlGpuInstanceCreateComputeInstance, nvmlGpuInstance_t, nvmlComputeInstance_t)
ONE_BY_ID(nvmlGpuInstanceGetComputeInstanceById, nvmlGpuInstance_t, nvmlComputeInstance_t)
HANDLES(nvmlGpuInstanceGetComputeInstances, nvmlGpuInstance_t, nvmlComputeInstance_t)
NONE(nvmlComputeInstanceDestroy, nvmlComputeInstance_t)

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info) {
    struct answer a = ASK(instance);
    FILL(*info = (nvmlComputeInstanceInfo_t){.device = a.n[0], .gpuInstance = a.n[1], .id = a.n[2],
                                             .profileId = a.n[3], .placement = {.start = a.n[4], .size = a.n[5]}})
}
